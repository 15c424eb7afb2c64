"""Real local jobs in tests: a session, a notebook's folder, and a display that records."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import textwrap
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel.backends.local.backend import LocalBackend
from ciao_kernel.backends.local.machine.gpus import Devices
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError, JobFailed
from ciao_kernel.model import Event, Job, JobResult, Notice, Output, Owner, Replica, State, Status
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.stopping import Lifetime

MARK = "CIAO_TEST_PLACE"
PATIENCE = 120.0
"""Seconds that any single thing may take: on a busy node a pod needs 40 to start."""


@dataclass
class Recorder:
    """A display that keeps everything, and checks the order of calls."""

    events: list[Event] = field(default_factory=list)
    job: Job | None = None
    begun: int = 0
    ended: int = 0
    errors: list[JobFailed] = field(default_factory=list)
    tails: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _data: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _lines: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        assert self.begun == self.ended
        self.job, self.begun = job, self.begun + 1

    def show(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Output):
            assert self.begun == self.ended + 1
            name = str(event.replica)
            assert event.lines == event.data.count(b"\n") + (
                bool(event.data) and not event.data.endswith(b"\n")
            )
            self._data[name].append(event.data)
            self._lines[name] += event.lines
            if event.tail:
                self.tails[name].append(event.tail)

    def conclude(self, error: JobFailed) -> bool:
        assert self.begun == self.ended + 1
        self.errors.append(error)
        return False

    async def end(self) -> None:
        self.ended += 1

    def data(self, replica: str) -> bytes:
        """All that was shown of a replica."""
        return b"".join(self._data[replica])

    @property
    def replicas(self) -> list[str]:
        """The replicas that have written something."""
        return list(self._data)

    def lines(self, replica: str) -> int:
        """How many lines the events counted."""
        return self._lines[replica]

    @property
    def notices(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Notice))

    @property
    def status(self) -> Status:
        """The last status."""
        return [event for event in self.events if isinstance(event, Status)][-1]

    def reasons(self, role: str) -> list[str]:
        """The last reasons of a role's replicas, none before the first status."""
        statuses = [event for event in self.events if isinstance(event, Status)][-1:]
        replicas = [one for now in statuses for one in now.replicas]
        return [one.reason for one in replicas if one.replica.role == role]

    def state(self, replica: str) -> State:
        return next(one.state for one in self.status.replicas if str(one.replica) == replica)

    async def until(
        self, *texts: str, replica: str = "worker-0", patience: float = PATIENCE
    ) -> None:
        """Wait until a replica has written all of these."""
        await wait(lambda: all(text.encode() in self.data(replica) for text in texts), patience)


@dataclass
class Ended:
    """How a cell ended."""

    display: Recorder
    result: JobResult | None = None
    error: CiaoError | None = None
    shown: dict[str, bytes] = field(default_factory=dict)
    """What was shown of each replica when the error was raised."""

    @property
    def job(self) -> Job:
        assert self.display.job is not None
        return self.display.job

    def log(self, replica: str) -> bytes:
        """The replica's log file."""
        return (Path(self.job.place).parent / "logs" / f"{replica}.log").read_bytes()


class _Registry(Registry):
    def __init__(self, devices: tuple[str, ...]) -> None:
        super().__init__({})
        self._devices = devices

    def backend(self, name: str, settings: Settings) -> Any:
        if name == "local":
            return LocalBackend(settings, devices=lambda: Devices(self._devices))
        return super().backend(name, settings)


class Place:
    """A user's folder and storage; whatever is started from here can be found."""

    def __init__(self, root: Path, mark: str) -> None:
        self.folder = root / "notebook"
        self.storage = root / "storage"
        self.folder.mkdir(exist_ok=True)
        self.mark = mark

    def settings(self, **changes: Any) -> Settings:
        # However slow the machine is, each replica gets to its end.
        base: dict[str, Any] = {"storage": self.storage, "stop_grace": 3.0, "linger": 30.0}
        return Settings(**{**base, **changes})

    def session(
        self,
        *,
        owner: int | None = None,
        devices: tuple[str, ...] = (),
        lifetime: Lifetime | None = None,
        **settings: Any,
    ) -> Session:
        """A session whose jobs end with this process, or with ``owner``."""
        who = Owner("a test", owner or os.getpid())
        return Session(_Registry(devices), who, self.settings(**settings), lifetime)

    def run(self, text: str, session: Session | None = None, **settings: Any) -> Ended:
        """Run a cell to its end, whatever it is."""

        async def main() -> Ended:
            return await self.ended(text, session or self.session(**settings))

        return asyncio.run(main())

    async def ended(self, text: str, session: Session, display: Recorder | None = None) -> Ended:
        """Run a cell within a loop."""
        display = display or Recorder()
        try:
            return Ended(display, await session.run(cell(text), display, self.folder))
        except CiaoError as error:
            return Ended(display, error=error)

    def write(self, name: str, text: str | bytes = "") -> Path:
        """A file beside the notebook."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def leftovers(self) -> list[str]:
        """What lies in the folder of jobs."""
        jobs = self.storage / "jobs"
        return sorted(path.name for path in jobs.iterdir()) if jobs.is_dir() else []

    def alive(self) -> list[int]:
        """All processes that were started from here, supervisors too."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def training(self) -> list[int]:
        """The same without supervisors, which take a moment to end after their job."""
        found = []
        for pid in self.alive():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                found += [] if b"local.supervisor" in line or not line else [pid]
        return found

    def commands(self) -> list[str]:
        """Their command lines, for a message."""
        lines = []
        for pid in self.alive():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                lines.append(f"{pid} {line.decode(errors='replace')[-120:]}")
        return lines

    def kill_all(self) -> None:
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def cell(text: str) -> str:
    """A cell as it is written in a test, indented."""
    return textwrap.dedent(text).lstrip("\n")


async def wait(true: Callable[[], Any], patience: float = PATIENCE) -> None:
    """Poll until something is true."""
    until = time.monotonic() + patience
    while not true():
        assert time.monotonic() < until, "it did not come about"
        await asyncio.sleep(0.01)


async def interrupted(work: Awaitable[Any]) -> None:
    """Cancel a cell's task as the stop button does, and see it end so."""
    task = asyncio.ensure_future(work)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
        raise AssertionError("the interrupt was swallowed")


def replica(name: str) -> Replica:
    """``worker-0`` as a value."""
    match = re.fullmatch(r"(\w+)-(\d+)", name)
    assert match
    return Replica(match[1], int(match[2]))
