"""Processes that left their parents, and jobs whose supervisor was killed: nothing runs on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.local import processes
from ciao_kernel.model import State
from tests.helpers.jobs import Ended, Place, Recorder, wait

DAEMON = """
%framework=tensorflow
%worker=1
import os, subprocess, sys, time
child = '''if True:
    import os, signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while not os.path.getsize("daemon.part"): time.sleep(0.01)
    os.rename("daemon.part", "daemon")
    while True: time.sleep(60)
'''
# Its parent ends at once, and it has no environment and a session of its own.
launch = '''if True:
    import subprocess, sys
    daemon = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={}, start_new_session=True)
    open("daemon.part", "w").write(str(daemon.pid))
'''
with open("daemon.part", "w"): pass
subprocess.run([sys.executable, "-c", launch, child], env={})
while not os.path.exists("daemon"):
    time.sleep(0.01)
print("ready")
while not os.path.exists("go"):
    time.sleep(0.01)
"""
STUBBORN = """
%framework=tensorflow
%worker=2
%detach
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(f"ready-{__import__('os').environ['CIAO_REPLICA']}", "w").close()
while True: time.sleep(60)
"""

Daemons = list[tuple[int, str]]


@pytest.fixture
def daemons() -> Iterator[Daemons]:
    """Daemons of a test: the ids and births of processes without a mark."""
    found: Daemons = []
    yield found
    for pid, born in found:
        if processes.alive(pid, born):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Job:
    """A followed job that has started a daemon."""

    def __init__(self, place: Place, daemons: Daemons) -> None:
        self.place = place
        self.daemons = daemons
        self.display = Recorder()
        self.session = place.session()
        self.work: asyncio.Task[Ended] = asyncio.ensure_future(
            place.ended(DAEMON, self.session, self.display)
        )

    async def daemon(self) -> tuple[int, str]:
        """The daemon's process id and birth; it is killed at the end of a test that fails."""
        await self.display.until("ready")
        pid = int((self.folder / "work" / "daemon").read_text())
        born = processes.birth(pid)
        assert born is not None
        self.daemons.append((pid, born))
        return pid, born

    @property
    def folder(self) -> Path:
        assert self.display.job is not None
        return self.place.storage / "jobs" / self.display.job.name

    @property
    def supervisor(self) -> int:
        return int(status(self.folder)["supervisor"]["pid"])


def status(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "status.json").read_text())  # type: ignore[no-any-return]


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(") ")[2].split()[1])


def kill_both(supervisor: int) -> None:
    """Kill a supervisor and its guard, the guard first: it would end the job."""
    os.kill(parent(supervisor), signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)


@pytest.mark.parametrize("end", ["success", "stop", "delete", "killed supervisor"])
def test_a_daemon_without_a_mark_ends_with_its_job(jobs: Place, daemons: Daemons, end: str) -> None:
    async def main() -> None:
        job = Job(jobs, daemons)
        daemon = await job.daemon()
        backend, found, _ = await job.session.find(job.folder.name)
        if end == "success":
            (job.folder / "work" / "go").touch()
        elif end == "stop":
            await backend.stop(found, "test")
        elif end == "delete":
            await backend.delete(found)
        else:
            os.kill(job.supervisor, signal.SIGKILL)
        ended = await job.work
        assert (ended.error is None) == (end == "success")
        if end == "killed supervisor":  # by its guard, and the cell does not wait for that
            await wait(lambda: not processes.alive(*daemon))
        assert not processes.alive(*daemon)

    asyncio.run(main())


def test_a_supervisor_reaps_what_it_adopts(jobs: Place, daemons: Daemons) -> None:
    async def main() -> None:
        job = Job(jobs, daemons)
        pid, _ = await job.daemon()
        assert parent(pid) == job.supervisor
        os.kill(pid, signal.SIGKILL)
        await wait(lambda: not Path(f"/proc/{pid}").exists())
        (job.folder / "work" / "go").touch()
        ended = await job.work
        assert ended.error is None  # Reaping others does not lose the replica's exit code.

    asyncio.run(main())


def test_a_supervisor_goes_on_without_its_guard(jobs: Place, daemons: Daemons) -> None:
    async def main() -> None:
        job = Job(jobs, daemons)
        daemon = await job.daemon()
        os.kill(parent(job.supervisor), signal.SIGKILL)
        (job.folder / "work" / "go").touch()
        assert (await job.work).error is None
        assert not processes.alive(*daemon)

    asyncio.run(main())


def test_replicas_end_at_once_when_supervisor_and_guard_are_killed(jobs: Place) -> None:
    async def main() -> None:
        text = STUBBORN.replace("SIG_IGN", "SIG_DFL")
        ended = await jobs.ended(text, jobs.session())
        assert ended.result is not None
        folder = jobs.storage / "jobs" / ended.result.name
        await wait(lambda: len(list((folder / "work").glob("ready-*"))) == 2)
        kill_both(status(folder)["supervisor"]["pid"])
        await wait(lambda: not jobs.alive())  # No other process of ciao looks.

    asyncio.run(main())


def test_the_next_look_ends_replicas_that_ignore_sigterm(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        ended = await jobs.ended(STUBBORN, session)
        assert ended.result is not None
        folder = jobs.storage / "jobs" / ended.result.name
        await wait(lambda: len(list((folder / "work").glob("ready-*"))) == 2)
        kill_both(status(folder)["supervisor"]["pid"])
        await wait(lambda: len(jobs.alive()) == 2)
        (_, found), *_ = await session.jobs()
        assert found.state is State.LOST
        assert jobs.alive() == []

    asyncio.run(main())


def test_a_process_with_the_mark_of_another_job_is_not_ended(jobs: Place) -> None:
    """A replica that runs ``ciao run --detach`` starts a job of its own."""
    mark = f"another-{jobs.mark}"  # this test may run twice at a time
    ended = jobs.run(
        """
        %framework=tensorflow
        import os, subprocess
        other = {**os.environ, "CIAO_JOB_ID": "another-" + os.environ["CIAO_TEST_PLACE"]}
        for env in (other, {"CIAO_TEST_PLACE": os.environ["CIAO_TEST_PLACE"]}):
            process = subprocess.Popen(
                ["sleep", "600"], env=env, start_new_session=True, stdout=subprocess.DEVNULL
            )
            print(process.pid, flush=True)
        """
    )
    assert ended.error is None
    other, own = map(int, ended.log("worker-0").split())
    assert processes.birth(own) is None
    assert processes.birth(other) is not None
    assert processes.marked(mark) == [other]
    os.kill(other, signal.SIGKILL)
