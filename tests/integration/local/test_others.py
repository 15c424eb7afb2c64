"""Jobs of others: processes that stop and delete at the same time, machines with one storage."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ciao_kernel.backends.local import removal, store
from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.backends.local.hosts import FRESH, Host
from ciao_kernel.backends.local.machine.gpus import Devices
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, JobLost, JobStopped, SpecError, UsageError
from ciao_kernel.model import Owner, State
from ciao_kernel.model.queries import Streams
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.helpers.jobs import PATIENCE, Ended, Place, Recorder, replica, wait

WAITS = """
%framework=tensorflow
%name=a
import os, time
print("ready")
while not os.path.exists("go"):
    time.sleep(0.01)
print("done")
"""


class OnHost(Registry):
    """Plug-ins of a machine that shares its storage with others."""

    def __init__(self, host: str, fresh: float, devices: Callable[[], Devices]) -> None:
        super().__init__({})
        self._host, self._fresh, self._devices = host, fresh, devices

    def backend(self, name: str, settings: Settings) -> Any:
        if name != "local":
            return super().backend(name, settings)
        host = Host(settings.storage, self._host, self._fresh)
        return LocalBackend(settings, self._devices, host)


def session_on(
    place: Place,
    host: str,
    *,
    fresh: float = FRESH,
    devices: Callable[[], Devices] = Devices,
    **settings: Any,
) -> Session:
    """A session on a machine of some name; "" is the real one."""
    registry = OnHost(host, fresh, devices)
    return Session(registry, Owner("a test", os.getpid()), place.settings(**settings), None)


class Running:
    """A job that is followed in this loop and waits for a file."""

    def __init__(self, place: Place, session: Session, text: str = WAITS) -> None:
        self.place, self.display = place, Recorder()
        self.work: asyncio.Task[Ended] = asyncio.ensure_future(
            place.ended(text, session, self.display)
        )

    @property
    def folder(self) -> Path:
        assert self.display.job is not None
        return Path(self.display.job.place).parent

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        return found

    async def ready(self) -> str:
        await self.display.until("ready\n")
        assert self.display.job is not None
        return self.display.job.name

    async def end(self) -> Ended:
        (self.folder / "work" / "go").touch()
        return await self.work


def touched(file: Path, ago: float) -> None:
    """Let a file have been touched some seconds ago."""
    now = file.stat().st_mtime
    os.utime(file, (now - ago, now - ago))


# ---------------------------------------------------------------------------- one machine


def test_a_stop_gives_the_time_that_the_job_was_started_with(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LAST_WORDS", 0.0)
    text = """
        %framework=tensorflow
        import signal, sys, time
        def save(*_):
            time.sleep(1)
            print("saved")
            sys.exit()
        signal.signal(signal.SIGTERM, save)
        print("ready")
        while True: time.sleep(60)
        """

    async def main() -> None:
        running = Running(jobs, jobs.session(stop_grace=20.0), text)
        backend, job, _ = await jobs.session(stop_grace=0.0).find(await running.ready())
        await backend.stop(job, "by another")
        ended = await running.work
        assert isinstance(ended.error, JobStopped)
        assert ended.log("worker-0") == b"ready\nsaved\n"

    asyncio.run(main())


def test_a_name_that_is_another_jobs_by_now_is_left_alone(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        old = await jobs.ended("%framework=tensorflow\n%name=a\nprint()\n", session)
        (listed, _), *_ = await session.jobs()
        backend, *_ = await session.find("a")
        await backend.delete(old.job)
        running = Running(jobs, session)
        assert await running.ready() == "a"
        await backend.delete(listed)
        await backend.stop(listed, "late")
        assert (await running.end()).error is None
        assert jobs.leftovers() == ["a"]

    asyncio.run(main())


def test_a_name_is_free_while_its_folder_is_still_being_removed(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "%framework=tensorflow\n%name=a\nprint()\n"
    seen: list[str] = []

    def remove(folder: Folder) -> None:
        seen.append(folder.path.name)  # as if this process were killed now

    async def main() -> None:
        session = jobs.session()
        await jobs.ended(text, session)
        backend, job, _ = await session.find("a")
        with monkeypatch.context() as patch:
            patch.setattr(removal, "remove", remove)
            await backend.delete(job)
        assert jobs.leftovers() == seen
        assert await session.jobs() == []
        again = await jobs.ended(text, session)
        assert (again.job.name, len(await session.jobs())) == ("a", 1)
        assert len(jobs.leftovers()) == 2  # somebody may still be at it
        touched(jobs.storage / "jobs" / seen[0], 2 * 24 * 3600)
        await jobs.ended(text, session)
        assert jobs.leftovers() == ["a", "a-2"]

    asyncio.run(main())


def test_a_leftover_that_cannot_be_removed_hinders_no_job(
    jobs: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = jobs.storage / "jobs" / "old"
    (old / "work").mkdir(parents=True)
    os.utime(old, (1, 1))
    remove = removal.remove

    def stays(folder: Folder) -> None:
        if folder.path == old:
            raise BackendError(f"{old} cannot be removed completely.")
        remove(folder)

    monkeypatch.setattr(removal, "remove", stays)
    assert jobs.run("%framework=tensorflow\n%name=new\nprint()\n").error is None
    assert jobs.leftovers() == ["new", "old"]


def test_a_gpu_is_not_given_on_while_a_lost_job_uses_it(jobs: Place) -> None:
    text = """
        %framework=tensorflow
        %gpu=1
        %worker=1
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        def runs(pid):
            line = f"/proc/{pid}/cmdline"  # empty, of one that nobody has reaped yet
            return os.path.exists(line) and open(line).read() != ""
        print(os.environ["CUDA_VISIBLE_DEVICES"], [runs(pid) for pid in PIDS])
        while PIDS == []: time.sleep(60)
        """

    async def main() -> None:
        session = jobs.session(devices=("0",))
        waits = text.replace("PIDS", "[]").replace("%gpu=1", "%gpu=1;%detach")
        first = await jobs.ended(waits, session)
        assert first.result is not None
        folder = jobs.storage / "jobs" / first.result.name
        status = json.loads((folder / "status.json").read_text())
        supervisor = status["supervisor"]["pid"]
        await wait(lambda: b"[]" in (folder / "logs" / "worker-0.log").read_bytes())
        os.kill(psutil.Process(supervisor).ppid(), signal.SIGKILL)  # Its guard would end the job.
        os.kill(supervisor, signal.SIGKILL)
        await wait(lambda: len(jobs.alive()) == 1)
        second = await jobs.ended(
            text.replace("PIDS", str([status["replicas"][0]["pid"]])), session
        )
        assert second.error is None
        assert second.display.data("worker-0") == b"0 [False]\n"

    asyncio.run(main())


def test_an_unreadable_record_harms_no_other_job(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        running = Running(jobs, session)
        await running.ready()
        status = running.folder / "status.json"
        for broken in (b"", b"\0" * 40, b"null"):
            part = status.with_suffix(".test")
            part.write_bytes(broken)
            part.replace(status)
            text = "%framework=tensorflow\n%worker=2\nprint()\n"
            assert (await jobs.ended(text, session)).error is None
        # The one that follows it waits for a better one, which comes with the job's next state.
        assert (await running.end()).error is None
        assert running.display.data("worker-0") == b"ready\ndone\n"

    asyncio.run(main())


def test_the_devices_are_counted_before_the_lock_is_taken(jobs: Place) -> None:
    locked: list[bool] = []

    def devices() -> Devices:
        with (jobs.storage / "claims.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked.append(False)
            except BlockingIOError:
                locked.append(True)
        return Devices(("0",))

    async def main() -> None:
        jobs.storage.mkdir()
        session = session_on(jobs, "", devices=devices)
        ended = await jobs.ended("%framework=tensorflow\n%gpu=1\nprint()\n", session)
        assert ended.error is None
        assert locked
        assert not any(locked)

    asyncio.run(main())


# ------------------------------------------------------------------------- two machines


def test_a_job_of_another_machine_is_seen_and_left_alone(jobs: Place) -> None:
    async def main() -> None:
        running = Running(jobs, session_on(jobs, "a-host 1"))
        name = await running.ready()
        there = session_on(jobs, "b-host 2")
        backend, job, status = await there.find(name)
        assert status.state is State.RUNNING
        assert "on a-host" in dict((await backend.details(job)).facts)["supervisor"]
        streams = Streams(lambda data: None, lambda data: None)
        with pytest.raises(UsageError, match="a runs on a-host"):
            await backend.execute(job, replica("worker-0"), ["true"], streams)
        # Without a sign of life it is lost there, and nothing of it is touched.
        supervisor = running.status["supervisor"]["pid"]
        os.kill(supervisor, signal.SIGSTOP)
        try:
            touched(running.folder / "status.json", 2 * FRESH)
            assert [found.state for _, found in await there.jobs()] == [State.LOST]
            with pytest.raises(JobLost, match="on a-host gives no sign of life"):
                await there.attach(name, Recorder())
            with pytest.raises(JobLost, match="this machine was restarted"):
                await session_on(jobs, "a-host 3").attach(name, Recorder())
            # On its own machine it is known to live, whatever the name of that is now.
            assert (await session_on(jobs, "new-name 1").find(name))[2].state is State.RUNNING
        finally:
            os.kill(supervisor, signal.SIGCONT)
        os.utime(running.folder / "status.json")
        display = Recorder()
        attached = asyncio.ensure_future(there.attach(name, display))
        await display.until("ready\n")
        assert (await running.end()).error is None
        await attached
        assert display.data("worker-0") == b"ready\ndone\n"
        assert (await there.find(name))[2].state is State.SUCCEEDED

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["running", "none"])
def test_a_job_is_deleted_from_another_machine(jobs: Place, policy: str) -> None:
    """With the policy "none" it is settled long before its processes have ended."""
    text = f"""
        %framework=tensorflow
        %name=a
        %ps=1
        %worker=1
        %cleanPolicy={policy}
        import os, signal, sys, time
        def save(*_):
            open("../../../saved", "w").close()
            sys.exit()
        if os.environ["CIAO_REPLICA"] == "ps-0" or "{policy}" == "running":
            signal.signal(signal.SIGTERM, save)
            print("ready")
            while True: time.sleep(60)
        while not os.path.exists("go"): time.sleep(0.01)
        """

    async def main() -> None:
        running = Running(jobs, session_on(jobs, "a-host", stop_grace=60.0), text)
        await running.display.until("ready\n", replica="ps-0")
        if policy == "none":
            assert (await running.end()).error is None
        backend, job, _ = await session_on(jobs, "b-host").find("a")
        await backend.delete(job)
        assert jobs.leftovers() == []
        assert jobs.training() == []
        assert (jobs.storage / "saved").exists()
        if policy == "running":
            assert isinstance((await running.work).error, JobStopped)

    asyncio.run(main())


def test_a_job_that_does_not_end_on_another_machine_keeps_its_folder(jobs: Place) -> None:
    async def main() -> None:
        running = Running(jobs, session_on(jobs, "a-host", stop_grace=0.2))
        await running.ready()
        supervisor = running.status["supervisor"]["pid"]
        os.kill(supervisor, signal.SIGSTOP)
        try:
            touched(running.folder / "status.json", -600)  # it seems to live
            backend, job, _ = await session_on(jobs, "b-host", fresh=0.5).find("a")
            with pytest.raises(BackendError, match="runs on a-host") as caught:
                await backend.delete(job)
            assert "on a-host" in caught.value.hint
            assert (running.folder / "job.json").exists()
            assert len(jobs.training()) == 1
        finally:
            os.kill(supervisor, signal.SIGCONT)
        ended = await running.work
        assert isinstance(ended.error, JobStopped)
        assert "deleted" in ended.error.message

    asyncio.run(main())


def test_each_machine_has_gpus_of_its_own(jobs: Place) -> None:
    text = WAITS.replace("%name=a", "%gpu=1")

    async def main() -> None:
        here = session_on(jobs, "a-host", devices=lambda: Devices(("0",)))
        there = session_on(jobs, "b-host", devices=lambda: Devices(("0",)))
        both = [Running(jobs, here, text), Running(jobs, there, text)]
        for one in both:
            await one.ready()
        for session in (here, there):
            refused = await jobs.ended(text, session)
            assert isinstance(refused.error, UsageError | SpecError)
            assert "0 of 1 are free" in refused.error.message
        for one in both:
            assert (await one.end()).error is None

    asyncio.run(main())


BEATING = """
import sys
from pathlib import Path
from ciao_kernel.backends.local import status_writer
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.supervisor import Supervisor

status_writer._HEARTBEAT_INTERVAL = 0.0
Supervisor(Folder(Path(sys.argv[1]))).run()
"""


@contextlib.contextmanager
def supervised(folder: Path) -> Iterator[None]:
    """A job's supervisor that beats at each look; it ends with the block."""
    process = subprocess.Popen([sys.executable, "-c", BEATING, str(folder)])
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_a_supervisor_shows_that_it_lives_and_nothing_else_is_seen(jobs: Place) -> None:
    async def main() -> None:
        session = session_on(jobs, "a-host")
        ended = await jobs.ended(
            """
            %framework=tensorflow
            %name=a
            import os, time
            while os.path.exists("again"): time.sleep(60)
            open("again", "w").close()
            """,
            session,
        )
        folder = Path(ended.job.place).parent
        status = folder / "status.json"
        before = status.stat().st_ino
        with supervised(folder):
            await wait(lambda: status.stat().st_ino != before)
            display = Recorder()
            attached = asyncio.ensure_future(session_on(jobs, "b-host").attach("a", display))
            await wait(lambda: display.events)
            for _ in range(3):
                now = status.stat().st_mtime
                touched(status, FRESH / 2)
                await wait(lambda since=now: status.stat().st_mtime >= since)  # type: ignore[misc]
        with pytest.raises(JobStopped):
            await attached
        states = [event for event in display.events if getattr(event, "replicas", None)]
        assert len(states) == len(set(states))

    asyncio.run(main())
