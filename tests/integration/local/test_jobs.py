"""Jobs that go on by themselves, are found again, stopped, deleted, or lost."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ciao_kernel.errors import JobFailed, JobLost, JobStopped, NoSuchJob
from ciao_kernel.model import State, Status
from tests.helpers.jobs import Ended, Place, Recorder, cell, interrupted, wait

WAITS = """
%framework=tensorflow
%worker=2
import os, time
print("ready")
while not os.path.exists("go"):
    time.sleep(0.01)
print("done")
"""


def record(place: Place, name: str, file: str) -> dict:  # type: ignore[type-arg]
    return json.loads((place.storage / "jobs" / name / file).read_text())  # type: ignore[no-any-return]


class Running:
    """A job that is followed in this loop and waits for a file."""

    def __init__(self, place: Place, text: str = WAITS, **settings: object) -> None:
        self.display = Recorder()
        self.session = place.session(**settings)  # type: ignore[arg-type]
        self.work: asyncio.Task[Ended] = asyncio.ensure_future(
            place.ended(text, self.session, self.display)
        )

    async def ready(self) -> str:
        await self.display.until("ready\n")
        assert self.display.job is not None
        return self.display.job.name

    def go(self) -> None:
        assert self.display.job is not None
        (Path(self.display.job.place) / "go").touch()


def test_a_detached_job_is_attached_from_another_session(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        head = "%worker=2\n%detach\n%cleanPolicy=all"
        ended = await jobs.ended(WAITS.replace("%worker=2", head), session)
        assert ended.result is not None
        assert ended.result.state is State.RUNNING
        assert ended.display.begun == 0
        name = ended.result.name
        assert f"%ciao attach {name}" in ended.display.notices
        assert "It is kept after its end" in ended.display.notices

        other, display = jobs.session(), Recorder()
        following = asyncio.ensure_future(other.attach(name, display))
        await display.until("ready\n")
        await interrupted(following)
        assert "keeps running" in display.notices
        (job, status), *more = await other.jobs()
        assert not more
        assert job.detached
        assert status.state is State.RUNNING

        (Path(job.place) / "go").touch()
        again = Recorder()
        result = await other.attach(name, again)
        assert result.state is State.SUCCEEDED
        assert again.data("worker-0") == b"ready\ndone\n"
        # And once more when it is long over.
        late = Recorder()
        assert (await jobs.session().attach(name, late)).state is State.SUCCEEDED
        assert late.data("worker-0") == b"ready\ndone\n"
        assert late.lines("worker-0") == 2

    asyncio.run(main())


def test_a_job_that_failed_long_ago_fails_its_attach(jobs: Place) -> None:
    async def main() -> None:
        ended = await jobs.ended("%framework=tensorflow\n1 / 0\n", jobs.session())
        assert isinstance(ended.error, JobFailed)
        with pytest.raises(JobFailed, match="ZeroDivisionError"):
            await jobs.session().attach(ended.job.name, Recorder())

    asyncio.run(main())


def test_a_detached_job_outlives_the_process_that_started_it(jobs: Place) -> None:
    owner = subprocess.Popen(["sleep", "600"])

    async def main() -> None:
        session = jobs.session(owner=owner.pid)
        ended = await jobs.ended(WAITS.replace("%worker=2", "%worker=1\n%detach"), session)
        owner.kill()
        owner.wait()
        assert ended.result is not None
        name = ended.result.name
        assert record(jobs, name, "job.json")["owner"] is None  # so nobody looks for it
        os.kill(record(jobs, name, "status.json")["supervisor"]["pid"], signal.SIGCHLD)
        _, job, status = await session.find(name)
        assert status.state is State.RUNNING
        (Path(job.place) / "go").touch()
        await session.attach(job.name, Recorder())

    asyncio.run(main())


def test_all_ends_with_a_killed_owner_and_gets_no_grace(
    jobs: Place, figure: Callable[[str], None]
) -> None:
    code = f"""
import asyncio, os
from pathlib import Path
from tests.helpers.jobs import Place, Recorder, cell
place = Place(Path({str(jobs.folder.parent)!r}), {jobs.mark!r})
text = '''%framework=tensorflow
%ps=1
%worker=2
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"], start_new_session=True)
open(os.environ["CIAO_REPLICA"], "w").close()
while True: time.sleep(60)
'''
asyncio.run(place.session(stop_grace=600.0).run(text, Recorder(), place.folder))
"""
    root = Path(__file__).parents[3]
    owner = subprocess.Popen([sys.executable, "-c", code], cwd=root)

    def started() -> int:
        return len(list(jobs.storage.glob("jobs/*/work/*-?")))

    async def main() -> None:
        await wait(lambda: started() == 3)
        owner.kill()
        killed = time.monotonic()
        owner.wait()
        await wait(lambda: not jobs.training())  # An owner that lives would give them 10 min.
        figure(f"{time.monotonic() - killed:.2f} s until no training process is left")
        session = jobs.session()
        await wait(lambda: not jobs.alive())
        (_, status), *_ = await session.jobs()
        assert (status.state, status.reason) == (State.STOPPED, "OwnerGone")

    asyncio.run(main())


def test_a_process_id_that_is_used_again_is_no_owner(jobs: Place) -> None:
    async def main() -> None:
        # As if the owner had died and its number had been given to this process.
        running = Running(jobs)
        name = await running.ready()
        assert record(jobs, name, "job.json")["owner"]["pid"] == os.getpid()
        running.go()
        assert (await running.work).error is None

    asyncio.run(main())
    from ciao_kernel.backends.local import processes

    birth = processes.birth(os.getpid())
    assert birth is not None
    assert processes.alive(os.getpid(), birth)
    assert not processes.alive(os.getpid(), str(int(birth) - 1))
    assert not processes.alive(os.getpid(), None)


def test_a_stop_from_elsewhere_ends_the_cell_with_a_word(jobs: Place) -> None:
    async def main() -> None:
        running = Running(jobs)
        name = await running.ready()
        other = jobs.session()
        backend, job, _ = await other.find(name)
        await backend.stop(job, "interrupted by kernel 7")
        ended = await running.work
        assert isinstance(ended.error, JobStopped)
        assert ended.error.message == f"{name} was stopped (interrupted by kernel 7)."
        assert running.display.begun == running.display.ended == 1
        assert running.display.state("worker-1") is State.STOPPED

    asyncio.run(main())


def test_a_delete_from_elsewhere_ends_the_cell_with_a_word(jobs: Place) -> None:
    async def main() -> None:
        running = Running(jobs)
        name = await running.ready()
        backend, job, _ = await jobs.session().find(name)
        await backend.delete(job)
        ended = await running.work
        assert isinstance(ended.error, JobStopped)
        assert name in ended.error.message
        assert running.display.ended == 1
        assert jobs.leftovers() == []
        with pytest.raises(NoSuchJob):
            await running.session.find(name)

    asyncio.run(main())


def test_a_folder_that_vanishes_ends_the_follow_and_is_no_traceback(jobs: Place) -> None:

    async def main() -> None:
        running = Running(jobs)
        name = await running.ready()
        shutil.rmtree(jobs.storage / "jobs" / name)
        ended = await running.work
        assert isinstance(ended.error, JobStopped)
        assert "was deleted while it was followed" in ended.error.message
        # Nobody could find it any more, so it ends by itself.
        await wait(lambda: not jobs.alive())

    asyncio.run(main())


def test_a_lost_supervisor_ends_the_cell_and_leaves_nothing_running(jobs: Place) -> None:
    async def main() -> None:
        running = Running(jobs)
        name = await running.ready()
        os.kill(record(jobs, name, "status.json")["supervisor"]["pid"], signal.SIGKILL)
        ended = await running.work
        assert isinstance(ended.error, JobLost)
        assert f"ciao delete {name}" in ended.error.hint
        assert running.display.status.state is State.LOST
        assert running.display.state("worker-1") is State.LOST
        assert jobs.training() == []
        (job, status), *_ = await jobs.session().jobs()
        assert (job.name, status.state) == (name, State.LOST)
        # It can be followed to its end again, and deleted.
        with pytest.raises(JobLost):
            await running.session.attach(name, again := Recorder())
        assert again.data("worker-0") == b"ready\n"
        backend, job, _ = await running.session.find(name)
        await backend.delete(job)
        assert jobs.leftovers() == []

    asyncio.run(main())


def test_a_supervisor_that_breaks_says_so(jobs: Place) -> None:
    async def main() -> None:
        running = Running(jobs)
        name = await running.ready()
        status = jobs.storage / "jobs" / name / "supervisor.log"
        status.write_text("Traceback (most recent call last):\nRuntimeError: a fault\n")
        os.kill(record(jobs, name, "status.json")["supervisor"]["pid"], signal.SIGKILL)
        ended = await running.work
        assert isinstance(ended.error, JobLost)
        assert "RuntimeError: a fault" in ended.error.message
        assert str(status) in ended.error.hint

    asyncio.run(main())


def test_the_record_with_the_secrets_is_the_users_alone(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\n%envvar=TOKEN=hunter2\nprint('x')\n")
    folder = jobs.storage / "jobs" / ended.job.name
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "job.json").stat().st_mode & 0o777 == 0o600
    assert "hunter2" in (folder / "job.json").read_text()
    (again,) = folder.rglob("made_of.json")  # for `ciao rerun`
    assert again.stat().st_mode & 0o777 == 0o600
    # Nothing else that ciao wrote has it; the program is the user's own text.
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("job.json", "made_of.json", "ciao_cell.py"):
            assert b"hunter2" not in path.read_bytes()


def test_the_follow_filter_is_for_the_display_and_not_for_the_job(jobs: Place) -> None:
    class Following(Recorder):
        follow: tuple[str, ...] = ()

        def begin(self, job, follow):  # type: ignore[no-untyped-def]
            super().begin(job, follow)
            self.follow = follow

    async def main() -> None:
        display = Following()
        await jobs.session().run(
            cell("%framework=tensorflow\n%worker=2\n%follow=worker-1\nprint('x')\n"),
            display,
            jobs.folder,
        )
        assert display.follow == ("worker-1",)

    asyncio.run(main())


def test_names_are_unique_and_found_again(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        text = "%framework=tensorflow\n%name=mnist\nprint('x')\n"
        names = [(await jobs.ended(text, session)).job.name for _ in range(3)]
        assert names == ["mnist", "mnist-2", "mnist-3"]
        together = await asyncio.gather(*(jobs.ended(text, jobs.session()) for _ in range(4)))
        assert {one.job.name for one in together} == {f"mnist-{n}" for n in range(4, 8)}
        assert [job.name for job, _ in await session.jobs()][:3] == names
        with pytest.raises(NoSuchJob) as caught:
            await session.find("mnits-2")
        assert "Did you mean mnist-2?" in caught.value.hint
        for wrong in ("..", ".", "", "mnist/work", "a" * 300, "x\0y"):
            with pytest.raises(NoSuchJob):
                await session.find(wrong)

    asyncio.run(main())


def test_things_that_are_no_jobs_are_left_out_of_the_list(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        await jobs.ended("%framework=tensorflow\nprint('x')\n", session)
        other = jobs.storage / "jobs"
        (other / "half-made").mkdir()
        (other / "broken").mkdir()
        (other / "broken" / "status.json").write_text('{"state": "Run')
        (other / "a-file").touch()
        (other / "newer").mkdir()
        (other / "newer" / "job.json").write_text('{"version": 99}')
        (other / "newer" / "status.json").write_text("{}")
        assert len(await session.jobs()) == 1

    asyncio.run(main())


def test_a_job_is_deleted_with_folders_that_it_made_read_only(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        ended = await jobs.ended(
            """
            %framework=tensorflow
            import os
            os.makedirs("a/b")
            open("a/b/c", "w").close()
            os.chmod("a/b", 0o500)
            os.chmod("a", 0o500)
            """,
            session,
        )
        backend, job, _ = await session.find(ended.job.name)
        await backend.delete(job)
        await backend.delete(job)  # a second time is no error
        await backend.stop(job, "late")
        assert jobs.leftovers() == []

    asyncio.run(main())


def test_states_are_seen_in_an_order_that_can_be(jobs: Place) -> None:
    began = time.time()
    ended = jobs.run("%framework=tensorflow\n%worker=2\nprint('x')\n")
    states = [event for event in ended.display.events if isinstance(event, Status)]
    assert ended.display.events[-1] is states[-1]
    assert [one.settled for one in states] == [False] * (len(states) - 1) + [True]
    assert states[-1].state is State.SUCCEEDED
    for one in states[-1].replicas:
        assert one.log.endswith(f"{one.replica}.log")
        assert one.exit_code == 0
        assert began <= one.since <= time.time()


def test_a_display_that_breaks_does_not_leave_the_job_behind(jobs: Place) -> None:
    class Broken(Recorder):
        def show(self, event):  # type: ignore[no-untyped-def]
            if self.begun:
                raise BrokenPipeError

    async def main() -> None:
        text = cell("%framework=tensorflow\nimport time\nwhile True: time.sleep(9)\n")
        with pytest.raises(BrokenPipeError):
            await jobs.session().run(text, Broken(), jobs.folder)
        assert jobs.training() == []

    asyncio.run(main())


def test_an_interrupt_spares_a_job_that_outlives_an_ending_kernel(jobs: Place) -> None:
    from ciao_kernel.jupyter.shutdown import Lifetime

    async def main() -> None:
        for ending in (True, False):
            lifetime = Lifetime()
            running = Running(jobs, lifetime=lifetime, on_shutdown="leave", shutdown_wait=0.3)
            name = await running.ready()
            if ending:
                lifetime.end()
            await interrupted(running.work)
            if ending:
                await wait(lambda one=running: f"{name} keeps running." in one.display.notices)  # noqa: B023
            backend, job, status = await running.session.find(name)
            async with asyncio.timeout(60):
                while not ending and not status.over:
                    await asyncio.sleep(0.05)
                    backend, job, status = await running.session.find(name)
            assert status.state is (State.RUNNING if ending else State.STOPPED)
            await backend.delete(job)

    asyncio.run(main())
