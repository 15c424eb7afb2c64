"""The faults over which a next try is made, and how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.lifecycle import retries
from ciao_kernel.backends.kubernetes.lifecycle.begun_tries import BegunTries, BegunTry
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.retries import Retries
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.model import Job

JOB = Job("j", "kubernetes", "tensorflow", (), 0.0, "team", resource="tfjobs", uid="1")
DENIED = Refused("forbidden.", code=403)
AWAY = ClusterFault("no answer.")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(retries, "_LAST_PAUSE", 0.02)
    monkeypatch.setattr(retries, "_LOOK", 0.01)
    monkeypatch.setattr(retries, "_DENIED", 0.3)


class Attempts:
    """Makes a next try after some faults; the last fault repeats if `lasts`."""

    def __init__(self, *faults: BackendError, lasts: bool = False) -> None:
        self.faults, self.lasts, self.count = list(faults), lasts, 0
        self.begun = BegunTries()
        self.seen: list[BegunTry] = []

    async def again(self, _: Any, job: Job, *__: Any) -> Job:
        self.count += 1
        self.seen.append(self.begun.of(job))
        if self.faults:
            raise self.faults[0] if self.lasts and len(self.faults) == 1 else self.faults.pop(0)
        return job


def made(attempts: Attempts) -> tuple[Job | None, list[str]]:
    told: list[str] = []
    tries: Any = Retries(Deletions())
    tries.__dict__["_resubmission"] = attempts
    work = tries._again(None, JOB, "/jobs/j", Settings(), lambda one: told.append(one.text))
    return asyncio.run(work), told


@pytest.mark.parametrize(
    "faults",
    [
        [Refused("too many requests.", code=429)],
        [Refused("sign in.", code=401)],
        [Refused("no backend.", code=503)],
        [DENIED],
        [AWAY, DENIED, DENIED],
    ],
)
def test_a_next_try_is_made_after_faults_that_pass(faults: list[BackendError]) -> None:
    found, told = made(Attempts(*faults))
    assert found == JOB
    assert len(told) == 1


def test_roles_may_be_missing_after_a_server_was_long_away() -> None:
    attempts = Attempts(*[AWAY] * 20, DENIED)  # longer than a denial alone may last
    assert made(attempts)[0] == JOB


def test_a_lasting_denial_is_final() -> None:
    attempts = Attempts(DENIED, lasts=True)
    with pytest.raises(Refused):
        made(attempts)
    assert attempts.count > 2


def test_another_refusal_is_final_at_once() -> None:
    attempts = Attempts(Refused("no such kind.", code=404), lasts=True)
    with pytest.raises(Refused):
        made(attempts)
    assert attempts.count == 1


def test_the_limit_that_holds_is_told() -> None:
    (away,), (denied,) = made(Attempts(AWAY))[1], made(Attempts(DENIED))[1]
    assert away.endswith("it is tried again for 600 s (setting followPatience) …")
    assert denied == "j is not started again yet: forbidden; it is tried again for 0 s …"


def test_nothing_of_a_next_try_is_kept_after_its_end() -> None:
    attempts = Attempts(AWAY, Refused("no such kind.", code=404))
    with pytest.raises(Refused):
        made(attempts)
    first, second = attempts.seen
    assert first is second
    assert attempts.begun.of(JOB) is not first
