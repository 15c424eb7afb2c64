"""The log of a real container arrives whole and once, whatever happens on the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.logs import ContainerLog, Gap
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.faults.proxy import Proxy
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until as wait_until
from tests.helpers.views import PolledPod, polled

PRINT = """
import os, time
began = time.monotonic()
for n in range({lines}):
    if n % 10 == 0:
        time.sleep(max(0, began + n / {rate} - time.monotonic()))
        if os.path.exists("/stop"):
            break
    print(f"{{n:08d}}", "{filler}")
"""


@dataclass
class Read:
    """What a reader got."""

    data: bytearray = field(default_factory=bytearray)
    gaps: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def lines(self) -> int:
        return self.data.count(b"\n")

    async def follow(self, log: ContainerLog) -> None:
        async with contextlib.aclosing(log.read()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Gap):
                    self.gaps.append(piece.text)
                else:
                    assert piece.data.endswith(b"\n")
                    assert piece.data.count(b"\n") == piece.count
                    self.data += piece.data
        self.ended = True

    def check(self, lines: int) -> str:
        """Every number came once, in order; returns a figure."""
        numbers = [int(line[:8]) for line in self.data.split(b"\n")[:-1]]
        lost = len(set(range(lines)) - set(numbers))
        doubled = len(numbers) - len(set(numbers))
        assert (lost, doubled, self.gaps) == (0, 0, [])
        assert numbers == sorted(numbers)
        return f"{lines:,} lines, lost {lost}, doubled {doubled}"


class Here:
    """A namespace, and clients."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.folder = namespace, folder

    def start(self, name: str, script: str, *, shell: bool = False, **spec: Any) -> None:
        command = ["sh", "-c", script] if shell else ["python3", "-u", "-c", script]
        container = {
            "name": "main",
            "image": self.namespace.cluster.image("tools"),
            "command": ["/bin/busybox", *command] if shell else command,
            **spec.pop("container", {}),
        }
        meta = {"name": name}
        given = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
        self.namespace.create_objects(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {**given, "containers": [container]},
            }
        )

    def print(self, name: str, lines: int, rate: int, filler: str = "") -> None:
        self.start(name, PRINT.format(lines=lines, rate=rate, filler=filler))

    async def stop_printing(self) -> None:
        """End what `print` has started, after its next lines."""
        argv = ("exec", "main", "--", "/bin/busybox", "touch", "/stop")
        await asyncio.to_thread(self.namespace.kubectl, *argv)

    async def client(self, kubeconfig: Path | None = None) -> Client:
        with pytest.MonkeyPatch.context() as patch:
            known = self.namespace.cluster.environment["KUBECONFIG"]
            patch.setenv("KUBECONFIG", str(kubeconfig or known))
            return Client(await access.load())

    @contextlib.asynccontextmanager
    async def view(self, pod: str) -> AsyncIterator[PolledPod]:
        async with await self.client() as client, polled(client, self.namespace.name, pod) as view:
            yield view

    @contextlib.asynccontextmanager
    async def reading(
        self, pod: str, proxy: Proxy | None = None, **options: Any
    ) -> AsyncIterator[Read]:
        """Read a pod's log while the block runs, and to its end."""
        through = proxy.kubeconfig(self.folder / "proxied") if proxy else None
        async with await self.client(through) as client, self.view(pod) as view:
            log = ContainerLog(client, self.namespace.name, pod, "main", view, **options)
            read = Read()
            task = asyncio.create_task(read.follow(log))
            try:
                yield read
                await asyncio.wait_for(task, 200)
            finally:
                task.cancel()
                await asyncio.wait([task])


@pytest.fixture
def here(namespace: Namespace, tmp_path: Path) -> Here:
    return Here(namespace, tmp_path)


async def until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.second("faults")
def test_a_hundred_cuts(here: Here, proxy: Proxy, figure: Callable[[str], None]) -> None:
    rng = random.Random(1)
    here.print("main", 10**6, 1000)  # after three minutes the node would rotate the log

    async def main() -> Read:
        async with here.reading("main", proxy) as read:
            await until(lambda: read.lines > 100)
            for cut in range(100):
                harm = [
                    proxy.reset,
                    proxy.close,
                    proxy.refuse,
                    lambda: proxy.reset(inside_record=True),
                    lambda: proxy.truncate(rng.randrange(8000, 60_000)),
                ][cut % 5]
                before, accepted = read.lines, proxy.traffic.accepted
                await asyncio.to_thread(harm)
                if cut % 5 > 2:  # those that wait for the next byte
                    await until(lambda known=accepted: proxy.traffic.accepted > known)
                await asyncio.sleep(rng.random() * 0.05)
                await asyncio.to_thread(proxy.pass_on)
                await until(lambda known=before: read.lines > known)
            await here.stop_printing()
        return read

    read = asyncio.run(main())
    whole = here.namespace.kubectl("logs", "main").encode()
    assert bytes(read.data) == whole
    figure(f"100 cuts: {read.check(read.lines)}, {proxy.traffic.accepted} connections")


@pytest.mark.second("faults")
@pytest.mark.breaks_cluster
@pytest.mark.parametrize("part", ["apiserver", "kubelet"])
def test_a_part_is_killed(
    here: Here, broken: Cluster, part: str, figure: Callable[[str], None]
) -> None:
    here.print("main", 10**6, 2000)

    async def main() -> Read:
        async with here.reading("main") as read:
            await until(lambda: read.lines > 1000)
            await asyncio.to_thread(broken.kill, part)
            await asyncio.to_thread(broken.start, part)
            known = read.lines
            await until(lambda: read.lines > known + 1000, 90)
            await here.stop_printing()
        return read

    read = asyncio.run(main())
    assert bytes(read.data) == here.namespace.kubectl("logs", "main").encode()
    figure(f"{part} killed: {read.check(read.lines)}")


def test_restarts_in_place(here: Here, figure: Callable[[str], None]) -> None:
    """Two instances end at once after a burst, the third and last prints for a while."""
    # When the second instance has ended, the node removes the first one's log.
    script = """
import os, sys, time
count = len(os.listdir("/kept"))
open(f"/kept/{count}", "w").close()
for n in range(2000):
    print(f"{count * 2000 + n:08d} of {count}")
    if count == 0 and n % 100 == 0:
        time.sleep(0.05)
    while count == 0 and n == 100 and not os.path.exists("/stop"):
        time.sleep(0.02)
sys.exit(count < 2)
"""
    kept = {"name": "kept", "emptyDir": {}}
    mount = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    here.start("main", script, restartPolicy="OnFailure", volumes=[kept], container=mount)

    async def main() -> Read:
        async with here.reading("main") as read:
            await until(lambda: read.lines)
            await here.stop_printing()
        return read

    figure(f"3 instances: {asyncio.run(main()).check(6000)}")


@pytest.mark.second("faults")
def test_a_pod_that_is_deleted_has_last_words(here: Here) -> None:
    script = """
import signal, sys, time
def end(*_):
    for n in range(1000, 2000):
        print(f"{n:08d}")
    sys.stdout.write("00002000 no end")
    sys.exit()
signal.signal(signal.SIGTERM, end)
for n in range(1000):
    print(f"{n:08d}")
time.sleep(600)
"""
    here.start("main", script, terminationGracePeriodSeconds=30, restartPolicy="Always")

    async def main() -> Read:
        async with here.reading("main") as read:
            await until(lambda: read.lines == 1000)
            await asyncio.to_thread(here.namespace.kubectl, "delete", "pod", "main", "--wait=false")
        return read

    read = asyncio.run(main())
    read.check(2001)
    assert read.data.endswith(b"00002000 no end\n")


SHAPES: dict[str, tuple[str, bytes]] = {
    "no-line-feed": ("print('one'); sys.stdout.write('two')", b"one\ntwo\n"),
    "progress": (
        r"[(sys.stdout.write(f'\r{n}%'), time.sleep(0.01)) for n in range(101)]; print()",
        b"".join(b"\r%d%%" % n for n in range(101)) + b"\n",
    ),
    "long": ("print('x' * 40_000); print('after')", b"x" * 40_000 + b"\nafter\n"),
    "endless": (
        "print('x' * 2_500_000); print('after')",
        b"".join(b"x" * n + b"\n" for n in (1 << 20, 1 << 20, 2_500_000 - (2 << 20))) + b"after\n",
    ),
    "bytes": (
        r"sys.stdout.buffer.write(b'\xff\xfe\n\n caf\xc3\n\x00\x0b\x85\n')",
        b"\xff\xfe\n\n caf\xc3\n\x00\x0b\x85\n",
    ),
    "nothing": ("pass", b""),
    "failing": ("print('no'); sys.exit(3)", b"no\n"),
    "two-streams": (
        "[print(n, file=(sys.stdout, sys.stderr)[n % 2], flush=True) for n in range(3)]",
        b"",
    ),
}


def test_shapes_of_output(here: Here) -> None:
    for name, (script, _) in SHAPES.items():
        here.start(name, f"import sys, time\n{script}")

    async def main() -> dict[str, Read]:
        found: dict[str, Read] = {}
        async with contextlib.AsyncExitStack() as stack:
            for name in SHAPES:
                found[name] = await stack.enter_async_context(here.reading(name))
        return found

    found = asyncio.run(main())
    assert not any(read.gaps for read in found.values())
    # Which of the two streams is first is the node's choice.
    assert sorted(found.pop("two-streams").data.split()) == [b"0", b"1", b"2"]
    assert {name: bytes(read.data) for name, read in found.items()} == {
        name: SHAPES[name][1] for name in found
    }


def waits_for_a_node(namespace: Namespace) -> None:
    def gated() -> bool:
        conditions = namespace.get("pod/main")["status"].get("conditions", [])
        return "SchedulingGated" in [one.get("reason") for one in conditions]

    wait_until(gated, "the pod to wait for a node", 60)


@pytest.mark.second("faults")
def test_a_pod_that_waits_for_a_node(here: Here) -> None:
    here.start("main", "print('here')", schedulingGates=[{"name": "ciao.test/wait"}])

    async def main() -> Read:
        async with here.reading("main") as read:
            await asyncio.to_thread(waits_for_a_node, here.namespace)
            assert not read.ended
            await asyncio.to_thread(
                here.namespace.kubectl, "patch", "pod", "main", "--type=json",
                "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]',
            )  # fmt: skip
        return read

    read = asyncio.run(main())
    assert read.data == b"here\n"
    assert not read.gaps


@pytest.mark.second("faults")
def test_a_late_reader_gets_what_is_kept(here: Here) -> None:
    here.print("main", 5000, 10**9)
    here.namespace.wait_for_pod("main", "Succeeded")

    async def main() -> list[Read]:
        found = []
        for options in ({}, {"since": "2999-01-01T00:00:00Z"}):
            async with here.reading("main", **options) as read:
                pass
            found.append(read)
        return found

    whole, nothing = asyncio.run(main())
    whole.check(5000)
    assert (nothing.data, nothing.gaps) == (b"", [])


@pytest.mark.second("faults")
@pytest.mark.alone
def test_a_rotated_log(here: Here, figure: Callable[[str], None]) -> None:
    """The node begins a new file at 10 MiB, and looks every ten seconds.

    A runtime that is slow to open the new file (CRI's ReopenContainerLog) writes some lines into
    the old one after the kubelet has left it, and gives them to no reader. They are the last ones
    before the new file: nothing else may be lost.
    """
    here.print("main", 10**6, 4000, "x" * 250)
    new: list[int] = []

    def rotated() -> bool:
        """Return whether who begins to read now gets another line than the first one."""
        with contextlib.suppress(ClusterError, ValueError):  # there is no file for a moment
            new[:] = [int(here.namespace.kubectl("logs", "main", "--limit-bytes=8") or 0)]
        return any(new)

    async def main() -> Read:
        async with here.reading("main") as read:
            await until(lambda: read.lines)
            await asyncio.to_thread(
                wait_until, rotated, "the node to rotate the log", 60, every=0.5
            )
            # Not for long: the node may rotate again.
            await until(lambda: int(read.data[-260:-252]) >= new[0])
            await here.stop_printing()
        return read

    read = asyncio.run(main())
    last = here.namespace.kubectl("logs", "main", "--tail=1").encode()
    assert last.endswith(b"x\n")
    assert read.data.endswith(last)
    numbers = [int(line[:8]) for line in read.data.splitlines()]
    lost = sorted(set(range(numbers[-1] + 1)) - set(numbers))
    assert lost == list(range(new[0] - len(lost), new[0]))
    assert len(lost) < 8000  # of two seconds
    assert (sorted(set(numbers)), read.gaps) == (numbers, [])
    size = len(read.data) / 1e6
    figure(f"rotated log of {size:.0f} MB: {len(numbers):,} lines, the node lost {len(lost)}")


@pytest.mark.second("faults")
def test_a_silent_connection_is_given_up(here: Here, proxy: Proxy) -> None:
    here.print("main", 10**6, 2000)

    async def main() -> Read:
        async with here.reading("main", proxy, read_timeout=3) as read:
            await until(lambda: read.lines > 100)
            accepted = proxy.traffic.accepted
            await asyncio.to_thread(proxy.stall)
            await until(lambda: proxy.traffic.accepted > accepted)
            await asyncio.to_thread(proxy.pass_on)
            await here.stop_printing()
        return read

    read = asyncio.run(main())
    read.check(read.lines)
    assert bytes(read.data) == here.namespace.kubectl("logs", "main").encode()


@pytest.mark.second("faults")
def test_a_reader_that_stops_closes_its_connection(here: Here, proxy: Proxy) -> None:
    here.print("main", 10**6, 2000)

    async def main() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async with here.reading("main", proxy) as read:
                await until(lambda: read.lines > 100)
                assert proxy.traffic.present == 1
                raise asyncio.CancelledError
        await until(lambda: proxy.traffic.present == 0)

    asyncio.run(main())
