"""Local jobs that are started again after another process has killed a replica (%retries)."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from ciao_kernel.model.queries import LogOptions
from tests.helpers.jobs import Ended, Place, Recorder, wait

TRAINS = """
import os, sys, time
own = os.environ["CIAO_CHECKPOINT"] + "/" + os.environ["CIAO_REPLICA"]
lives = os.path.getsize(own) if os.path.exists(own) else 0
open(own, "a").write("x")
print("life", lives, os.getpid(), flush=True)
while lives < 1:
    time.sleep(0.05)
"""


def run(jobs: Place, retries: str, kill: signal.Signals, lives: int = 1) -> Ended:
    async def main() -> Ended:
        session, display = jobs.session(), Recorder()
        head = f"%framework=tensorflow\n%worker=2\n%checkpoint\n{retries}\n"
        text = head + TRAINS.replace("< 1", f"< {lives}")
        cell = asyncio.ensure_future(jobs.ended(text, session, display))
        await display.until("life 0")
        await display.until("life 0", replica="worker-1")
        os.kill(int(display.data("worker-1").split()[2]), kill)
        return await cell

    return asyncio.run(main())


def without_notices(jobs: Place, ended: Ended, replica: str) -> bytes:
    """What following the job yields of a log: `ciao logs -f --tail` counts its lines."""

    async def main() -> bytes:
        backend, job, _ = await jobs.session().find(ended.job.name)
        one = next(one for one in job.replicas if str(one) == replica)
        return await backend.log(job, one, LogOptions(followed=True))

    return asyncio.run(main())


@pytest.mark.stands_for("trials")
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM])
def test_the_job_is_started_again_after_a_kill(jobs: Place, kill: signal.Signals) -> None:
    ended = run(jobs, "%retries=2", kill)
    assert ended.error is None
    told = f"worker-1 was killed by {kill.name}; try 2 of 3"
    for replica in ("worker-0", "worker-1"):
        first, second = ended.display.data(replica).decode().splitlines()
        assert first.startswith("life 0")
        assert second.startswith("life 1")
        assert ended.log(replica).decode().splitlines() == [first, f"ciao: {told}", second]
        assert without_notices(jobs, ended, replica) == ended.display.data(replica)
    told = told.replace(";", f"; {ended.job.name} is started again,")
    assert ended.display.notices.count(f"{told} (%retries=2).") == 1
    assert ended.display.status.tries == 2
    assert [one.restarts for one in ended.display.status.replicas] == [1, 1]
    assert "was restarted" not in ended.display.notices


def test_a_program_that_saves_when_it_is_told_to_end_is_started_again(jobs: Place) -> None:
    """As in docs/surviving.md."""
    saves = "import signal, sys\nsignal.signal(15, lambda *_: (print('saved'), sys.exit(143)))"

    async def main() -> Ended:
        session, display = jobs.session(), Recorder()
        text = f"%framework=tensorflow\n%worker=1\n%checkpoint\n%retries=1\n{saves}{TRAINS}"
        cell = asyncio.ensure_future(jobs.ended(text, session, display))
        await display.until("life 0")
        os.kill(int(display.data("worker-0").split()[2]), signal.SIGTERM)
        return await cell

    ended = asyncio.run(main())
    assert ended.error is None
    first, saved, second = ended.display.data("worker-0").decode().splitlines()
    assert (first[:6], saved, second[:6]) == ("life 0", "saved", "life 1")
    told = f"worker-0 was ended by SIGTERM; {ended.job.name} is started again, try 2 of 2"
    assert told in ended.display.notices


def test_without_a_try_left_the_job_fails(jobs: Place) -> None:
    ended = run(jobs, "", signal.SIGKILL)
    assert isinstance(ended.error, JobFailed)
    assert ended.display.status.state is State.FAILED
    assert ended.display.status.tries == 1


@pytest.mark.parametrize("end", ["sys.exit(1)", "sys.exit(137)", "1 / 0"])
def test_a_program_that_fails_is_not_started_again(jobs: Place, end: str) -> None:
    ended = jobs.run(f"%framework=tensorflow\n%worker=1\n%retries=3\nimport sys\n{end}")
    assert isinstance(ended.error, JobFailed)
    assert ended.display.status.tries == 1


def test_a_stop_ends_a_job_whose_replicas_are_being_ended(jobs: Place) -> None:
    stays = "import signal\nsignal.signal(15, lambda *_: 0)" + TRAINS

    async def main() -> None:
        # So long the other one stays: the stop must come before the next try.
        session, display = jobs.session(stop_grace=8.0), Recorder()
        head = "%framework=tensorflow\n%worker=2\n%checkpoint\n%retries=2\n"
        cell = asyncio.ensure_future(jobs.ended(head + stays, session, display))
        await display.until("life 0")
        await display.until("life 0", replica="worker-1")
        os.kill(int(display.data("worker-1").split()[2]), signal.SIGKILL)
        await wait(lambda: display.state("worker-1") is State.STOPPED)
        ((job, _),) = await session.jobs()
        await session.backend("local").stop(job, "test")
        await cell
        assert display.status.state is State.STOPPED
        assert display.status.tries == 1

    asyncio.run(main())
