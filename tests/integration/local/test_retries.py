"""Local jobs that are started again after another process has killed a replica (%retries)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State, Status
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
    # The other one stays until the stop, which sends the signal again.
    stays = (
        "import signal, sys\ntold = []\n"
        "signal.signal(15, lambda *_: told.append(1) or len(told) < 2 or sys.exit())" + TRAINS
    )

    async def main() -> None:
        session, display = jobs.session(stop_grace=60.0), Recorder()
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


LOSES = """
import os, signal, sys, time
tries = os.environ["CIAO_CHECKPOINT"] + "/tries"
first = not os.path.exists(tries)
if os.environ["CIAO_REPLICA"] == "worker-1":
    def end(*_):
        open("told", "w").close()
        os.kill(os.getpid(), 9) if OWN else sys.exit(143)
    signal.signal(signal.SIGTERM, end if ENDS else signal.SIG_IGN)
    print("ready", flush=True)
    open("ready", "w").close()
    while first:
        time.sleep(0.01)
else:
    while first and not os.path.exists("ready"):
        time.sleep(0.01)
    open(tries, "a").write("x")
    if first:
        raise ConnectionError("closed by peer")
"""


def lose(jobs: Place, header: str, *, ends: bool, own: bool = True) -> Ended:
    """worker-0 fails; worker-1 is killed as soon as it is told to end, ends with 143, or stays."""
    head = f"%framework=tensorflow\n%worker=2\n%checkpoint\n{header}\n"
    text = head + LOSES.replace("ENDS", str(ends)).replace("OWN", str(own))
    return jobs.run(text, stop_grace=60.0 if ends else 0.5)


def statuses(display: Recorder) -> list[Status]:
    return [event for event in display.events if isinstance(event, Status)]


def test_a_failure_before_the_loss_is_seen_belongs_to_the_loss(jobs: Place) -> None:
    """A launcher such as torchrun first ends the others when one of its processes was killed."""
    ended = lose(jobs, "%retries=2", ends=True)
    assert ended.error is None
    assert "worker-1 was killed by SIGKILL; " in ended.display.notices
    assert ended.display.status.tries == 2
    assert State.FAILED not in [one.state for one in statuses(ended.display)]


TRAINS_IN_FOUR = """
import os, signal, sys, time
own = os.environ["CIAO_CHECKPOINT"] + "/" + os.environ["RANK"]
again = os.path.exists(own)
open(own, "w").close()
def until(name):
    while not again and not os.path.exists(name):
        time.sleep(0.01)
if os.environ["CIAO_REPLICA"] == "master-0":
    until("closing")  # it has lost its connection
    sys.exit(0 if again else 1)
told = []
def end(*_):
    told.append(1)
    open("closing", "w").close()
    if len(told) > 1:  # by torchrun itself, and then for the job
        sys.exit(143)
if os.environ["LOCAL_RANK"] == "0":
    until("ready")
    again or os.kill(os.getpid(), 9)
else:
    signal.signal(signal.SIGTERM, end)
    open("ready", "w").close()
    until("never")
"""


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_failure_while_torchrun_ends_the_others_belongs_to_the_loss(jobs: Place) -> None:
    head = "%framework=pytorch\n%worker=1\n%nprocPerNode=2\n%checkpoint\n%retries=1\n"
    ended = jobs.run(head + TRAINS_IN_FOUR, stop_grace=60.0)
    assert ended.error is None
    assert "worker-0 was killed by SIGKILL; " in ended.display.notices
    assert ended.display.status.tries == 2


@pytest.mark.parametrize("ends", [True, False], ids=["143", "killed after the grace"])
def test_a_replica_that_ends_because_it_is_told_to_is_no_loss(jobs: Place, ends: bool) -> None:
    ended = lose(jobs, "%retries=2", ends=ends, own=False)
    assert isinstance(ended.error, JobFailed)
    assert "worker-0 ended with exit code 1: ConnectionError: closed" in ended.error.message
    assert ended.display.status.tries == 1
    codes = [one.exit_code for one in ended.display.status.replicas]
    assert codes == [1, 143 if ends else -9]


def test_without_a_try_left_a_later_kill_changes_nothing(jobs: Place) -> None:
    ended = lose(jobs, "", ends=True)
    assert isinstance(ended.error, JobFailed)
    assert "worker-0 ended with exit code 1: ConnectionError: closed" in ended.error.message
    assert ended.display.status.tries == 1


def test_a_failure_that_is_open_at_the_deadline_is_the_reason(jobs: Place) -> None:
    ended = lose(jobs, "%retries=2\n%deadline=25s\n%grace=30s", ends=False)
    assert isinstance(ended.error, JobFailed)
    assert "worker-0 ended with exit code 1: ConnectionError: closed" in ended.error.message
    assert ended.display.status.tries == 1


def test_a_stop_ends_a_job_whose_failure_is_open(jobs: Place) -> None:
    async def main() -> None:
        session, display = jobs.session(stop_grace=60.0), Recorder()
        head = "%framework=tensorflow\n%worker=2\n%checkpoint\n%retries=2\n"
        text = head + LOSES.replace("ENDS", "False").replace(
            "while first:", 'while first and not os.path.exists("end"):'
        )
        cell = asyncio.ensure_future(jobs.ended(text, session, display))
        await display.until("ready", replica="worker-1")
        await wait(lambda: display.state("worker-0") is State.FAILED)
        assert display.status.state is State.RUNNING
        ((job, _),) = await session.jobs()
        stopping = asyncio.ensure_future(session.backend("local").stop(job, "test"))
        await wait(lambda: display.status.state is State.STOPPED)
        (Path(job.workdir) / "end").touch()
        await stopping
        await cell
        assert State.FAILED not in [one.state for one in statuses(display)]
        assert display.status.state is State.STOPPED
        assert display.status.tries == 1

    asyncio.run(main())


def test_without_an_end_of_the_others_a_failure_is_told_at_once(jobs: Place) -> None:
    async def main() -> None:
        session, display = jobs.session(), Recorder()
        head = "%framework=tensorflow\n%worker=2\n%checkpoint\n%retries=2\n%cleanPolicy=none\n"
        ended = await jobs.ended(head + LOSES.replace("ENDS", "False"), session, display)
        assert isinstance(ended.error, JobFailed)
        assert display.state("worker-1") is State.RUNNING
        await session.backend("local").delete(ended.job)

    asyncio.run(main())
