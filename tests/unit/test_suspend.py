"""``ciao suspend`` and ``ciao resume``: which jobs they refuse."""

from __future__ import annotations

import argparse
import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.commands import resume, suspend
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.model import Job, State, Status

JOB = Job("mnist", "kubernetes", "tensorflow", (), 0.0, "team")


class Backend:
    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def set_suspended(self, job: Job, *, suspended: bool) -> None:
        assert job is JOB
        self.asked.append(suspended)


def run(verb: Any, backend: object, state: State = State.RUNNING) -> str:
    async def find(name: str, place: object) -> tuple[object, Job, Status]:
        assert name == "mnist"
        return backend, JOB, Status(state, (), since=0.0)

    told: list[str] = []
    caller: Any = SimpleNamespace(session=SimpleNamespace(find=find), write=told.append)
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    asyncio.run(verb.run(parser.parse_args(["mnist"]), caller))
    return "".join(told)


def test_the_verbs_suspend_and_resume() -> None:
    backend = Backend()
    assert run(suspend, backend).startswith("mnist is suspended: `ciao resume mnist")
    assert run(resume, backend).startswith("mnist is resumed: `ciao attach mnist")
    assert backend.asked == [True, False]


def test_a_job_that_is_over_stays_as_it_is() -> None:
    backend = Backend()
    with pytest.raises(BackendError, match="mnist is over: Succeeded"):
        run(suspend, backend, State.SUCCEEDED)
    assert backend.asked == []


def test_a_backend_without_places_says_so() -> None:
    with pytest.raises(UsageError, match="mnist cannot be suspended"):
        run(suspend, object())
    with pytest.raises(UsageError, match="mnist is not suspended") as caught:
        run(resume, object())
    assert "delete" not in caught.value.hint


@pytest.mark.parametrize("verb", [suspend, resume])
def test_the_end_of_a_job_is_named_first(verb: Any) -> None:
    with pytest.raises(BackendError, match="mnist is over: Succeeded"):
        run(verb, object(), State.SUCCEEDED)
