"""What the benchmarks on the tests' Kubernetes (`make cluster`) share: a place, and the peers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Event, Job, Notice, Output, Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from ciao_kernel.session.stopping import Lifetime
from tests.cluster.cluster import Cluster
from tests.cluster.namespace import Namespace
from tests.cluster.programs import on_demand

JOB = "bench"
"""Name of every job here; it is gone before the next one is made."""
SELECTOR = f"training.kubeflow.org/job-name={JOB}"


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace, and how each rival gets to it."""

    cluster: Cluster
    namespace: Namespace

    @property
    def environment(self) -> dict[str, str]:
        """For a kernel and for the command `ciao`: where their jobs go."""
        return {
            "KUBECONFIG": str(self.cluster.at.kubeconfig),
            "CIAO_NAMESPACE": self.namespace.name,
            "CIAO_IMAGES": f"tensorflow={self.image}",
            "CIAO_BACKEND": "kubernetes",
        }

    @property
    def image(self) -> str:
        """A small one, with Python and little else: pods start fast."""
        return self.cluster.image("tools")

    def kubectl(self, *arguments: str) -> list[str]:
        return self.cluster.kubectl_argv("-n", self.namespace.name, *arguments)

    def stern(self, *arguments: str) -> list[str]:
        """Stern on the job's pods; its usual limit of 50 pods at once is lifted."""
        own = ("--color=never", "--max-log-requests=200", f"--selector={SELECTOR}")
        return [str(on_demand("stern") / "stern"), "-n", self.namespace.name, *own, *arguments]

    def ciao(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "ciao_kernel.cli", *arguments]

    @contextlib.asynccontextmanager
    async def session(
        self, lifetime: Lifetime | None = None, **more: Any
    ) -> AsyncIterator[Session]:
        """A session in this process, with further settings; with a lifetime, as a kernel has it."""
        registry = Registry({})
        with tempfile.TemporaryDirectory() as storage:
            known = {"namespace": self.namespace.name, "images": {"tensorflow": self.image}}
            settings = Settings(storage=Path(storage), backend="kubernetes", **{**known, **more})
            try:
                yield Session(registry, Owner("bench", os.getpid()), settings, lifetime)
            finally:
                await registry.close()

    def submit(self, cell: str) -> None:
        """Start a cell that says %detach."""

        async def run() -> None:
            async with self.session() as session:
                await session.run(cell, Clock(), Path("/"))

        asyncio.run(run())

    def remove(self) -> None:
        """Delete the job, whoever made it, and wait until nothing of it is there."""
        what = "tfjobs,pods,services,configmaps"
        self.namespace.kubectl("delete", "tfjobs", "--all")
        self.namespace.kubectl("delete", "configmaps", "-l", f"ciao-kernel/job={JOB}")
        while any(
            item["metadata"]["name"] != "kube-root-ca.crt"
            for item in self.namespace.get(what)["items"]
        ):
            time.sleep(0.1)


@contextlib.contextmanager
def place(name: str) -> Iterator[Place | None]:
    """A namespace on the cluster that is up; None, which is said, if there is none."""
    cluster = Cluster()
    if cluster.node.pid is None:
        print("    left out: no cluster is up (make cluster)")
        yield None
        return
    os.environ["KUBECONFIG"] = str(cluster.at.kubeconfig)
    namespace = Namespace(cluster, name)
    namespace.create()
    try:
        yield Place(cluster, namespace)
    finally:
        namespace.delete()


class Clock:
    """A display that notes when things came, in seconds since the epoch."""

    def __init__(self) -> None:
        self.accepted = self.first = 0.0
        self.lines = 0
        self.notices = self.folder = ""

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        self.accepted = time.time()
        self.folder = job.folder

    def show(self, event: Event) -> None:
        if isinstance(event, Output):
            self.first = self.first or time.time()
            self.lines += event.lines
        elif isinstance(event, Notice):
            self.notices += event.text

    def conclude(self, error: CiaoError) -> bool:
        return False

    async def end(self) -> None:
        pass


async def run(session: Session, cell: str, folder: Path = Path("/")) -> tuple[Clock, float]:
    """Run a cell to its end, well or not; return when things came, and when it was over."""
    clock = Clock()
    with contextlib.suppress(CiaoError):
        await session.run(cell, clock, folder)
    return clock, time.time()


async def objects(session: Session, cell: str) -> list[dict[str, Any]]:
    """The objects that a cell would create."""
    clock = Clock()
    await session.run("%dryrun\n" + cell, clock, Path("/"))
    return list(yaml.safe_load_all(clock.notices))


@dataclass
class Reader:
    """A program whose lines are noted with the time at which they came."""

    argv: Sequence[str]
    env: dict[str, str] = field(default_factory=dict)
    lines: list[tuple[float, str]] = field(default_factory=list)

    def __enter__(self) -> Reader:
        self.process = subprocess.Popen(
            self.argv,
            env=os.environ | self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.wait()

    def wait(self, most: float | None = None) -> None:
        """Wait until the program has ended and all of it is read; end it after so many seconds."""
        try:
            self.process.wait(most)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join()

    def find(self, word: str) -> float:
        """When the first line with a word came; waits for it.

        Raises:
            RuntimeError: The program has ended without it.
        """
        while True:
            ended = not self._thread.is_alive()
            if found := next((at for at, line in list(self.lines) if word in line), None):
                return found
            if ended:
                raise RuntimeError(f"{self.argv[0]} ended, and never wrote {word!r}")
            time.sleep(0.001)

    def _read(self) -> None:
        assert self.process.stdout
        rest = b""
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            at = time.time()
            *lines, rest = (rest + data).split(b"\n")
            self.lines += [(at, line.decode(errors="replace")) for line in lines]


@dataclass(frozen=True)
class Wrote:
    """Bytes that a program has written, and the seconds after its start: of the first, the last."""

    size: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass
class Used:
    """What a program that has ended took: seconds, seconds of processor, bytes at its peak."""

    seconds: float
    cpu: float
    peak: float
    wrote: Wrote


@dataclass
class Program:
    """A program that writes to a file, so that nobody's reading of it costs anything."""

    argv: Sequence[str]
    file: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> Path:
        """The file that takes what it says beside its output."""
        return self.file.with_suffix(".words")

    def start(self) -> Program:
        with self.file.open("wb") as stream, self.words.open("wb") as words:
            self._began = time.perf_counter()
            self._process = subprocess.Popen(
                self.argv, env=os.environ | self.env, stdout=stream, stderr=words
            )
        self.pid, self._peak = self._process.pid, 0.0
        self._wrote = Wrote()
        threading.Thread(target=self._sample, daemon=True).start()
        return self

    def cpu(self) -> float:
        """Processor seconds up to now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> Used:
        """Wait for its end."""
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        took = time.perf_counter() - self._began
        self._note_size(took)
        return Used(took, usage.ru_utime + usage.ru_stime, self._peak, self._wrote)

    def stop(self) -> Used:
        """End a program that would follow for ever."""
        os.kill(self.pid, signal.SIGTERM)
        return self.end()

    def _sample(self) -> None:
        # Not ru_maxrss: that of a child begins with what its parent had.
        with contextlib.suppress(OSError, LookupError):
            for number in itertools.count():
                if number % 10 == 0:
                    self._peak = peak(self.pid)
                Path(f"/proc/{self.pid}").stat()  # ends the loop with the program
                self._note_size(time.perf_counter() - self._began)
                time.sleep(0.005)

    def _note_size(self, now: float) -> None:
        if (size := self.file.stat().st_size) > self._wrote.size:
            first = self._wrote.first if self._wrote.size else now
            self._wrote = Wrote(size, first, now)


def peak(pid: int) -> float:
    """The most memory that a process had up to now, in bytes.

    Raises:
        OSError, LookupError: It has ended.
    """
    text = Path(f"/proc/{pid}/status").read_text()
    return float(text.partition("VmHWM:")[2].split()[0]) * 1024


def listed(items: Sequence[dict[str, Any]]) -> str:
    """Objects as kubectl takes them from its standard input."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
