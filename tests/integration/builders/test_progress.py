"""Long steps of builders say how far they are, by what was really sent or fetched."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.model import Event, Manifest, Progress, SourceFile, Unit
from ciao_kernel.plugins import Emit, PodResult
from tests.helpers.jobs import wait
from tests.helpers.packages import Index
from tests.integration.builders.test_append import Kernel, Serve
from tests.integration.builders.test_kaniko import Kernel as KanikoKernel
from tests.integration.builders.test_kaniko import Pods
from tests.integration.oci.fake_registry import FakeRegistry, Handler, push_base
from tests.integration.oci.test_contents import layer, push

LARGE = 12 << 20
"""More than the sockets of both sides hold."""
WAIT = 60.0


def kernel(fake: FakeRegistry, index: Index, folder: Path) -> Kernel:
    push(fake, layer())
    return Kernel(fake, index, folder)


@pytest.fixture
def goes_on(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The registry reads a large layer only once this is set."""
    event, real = threading.Event(), Handler.do_PUT

    def late(handler: Handler) -> None:
        if int(handler.headers["Content-Length"]) >= LARGE // 2:
            event.wait(WAIT)
        real(handler)

    monkeypatch.setattr(Handler, "do_PUT", late)
    return event


def files(folder: Path) -> tuple[SourceFile, ...]:
    data = folder / "data.bin"
    data.write_bytes(random.Random(1).randbytes(LARGE))
    return (SourceFile("data.bin", origin=data, size=LARGE),)


def pushing(events: Sequence[Progress], fake: FakeRegistry) -> list[Progress]:
    return [one for one in events if one.step == f"pushing to {fake.host}/team/cells"]


def test_the_bytes_of_a_layer_that_is_pushed(
    serve: Serve, index: Index, tmp_path: Path, goes_on: threading.Event
) -> None:
    fake = serve(auth="")
    one = kernel(fake, index, tmp_path)

    async def main() -> None:
        work = asyncio.ensure_future(one.build("print(1)", files=files(tmp_path)))
        await wait(lambda: bool(begun()) or work.done())
        assert not work.done()
        goes_on.set()
        await work

    def begun() -> list[Progress]:
        """Without one from before the first piece, which a busy machine may show."""
        return [event for event in pushing(one.progress, fake) if event.done]

    asyncio.run(main())
    first, *_, last = begun()
    pushed = [len(raw) for (name, _), raw in fake.blobs.items() if name == "team/cells"]
    assert first.total in pushed
    assert 0 < first.done < first.total
    assert not first.over
    # Both layers, of the files and of the code; small ones have no pieces to count.
    assert last.over
    assert not last.failed
    assert last.total == last.done == first.total


def test_the_bar_of_an_interrupted_upload_ends(
    serve: Serve, index: Index, tmp_path: Path, goes_on: threading.Event
) -> None:
    fake = serve(auth="")
    one = kernel(fake, index, tmp_path)

    async def main() -> None:
        work = asyncio.ensure_future(one.build("print(1)", files=files(tmp_path)))
        await wait(lambda: bool(pushing(one.progress, fake)) or work.done())
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        count = len(one.progress)
        goes_on.set()
        await asyncio.sleep(0)
        assert len(one.progress) == count

    asyncio.run(main())
    last = pushing(one.progress, fake)[-1]
    assert last.over
    assert last.failed


def test_a_layer_of_a_base_that_is_copied(
    serve: Serve, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = serve(auth=""), serve(auth="")
    push_base(far, layers=1)
    one = Kernel(near, index, tmp_path)
    one.base = f"{far.host}/bases/python:1"
    one.new(plain_registries=(near.host, far.host))
    shown, real = threading.Event(), Handler.do_PUT

    def late(handler: Handler) -> None:
        real(handler)
        shown.wait(WAIT)

    monkeypatch.setattr(Handler, "do_PUT", late)

    def whole(event: Progress) -> bool:
        return event.done == event.total > 0

    async def main() -> None:
        work = asyncio.ensure_future(one.build("print(1)"))
        await wait(lambda: any(map(whole, pushing(one.progress, near))) or work.done())
        assert not work.done()
        shown.set()
        await work

    asyncio.run(main())
    first = pushing(one.progress, near)[0]
    assert first.detail == f"a layer of {far.host}/bases/python"


def test_packages_that_are_downloaded_are_counted(
    serve: Serve, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")  # each wheel comes from the index again
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "60")
    index.add("app", "1.0", "lib")
    index.add("lib", "2.0")

    def told(step: str) -> list[Progress]:
        return [event for event in one.progress if event.step == step]

    class StallingKernel(Kernel):
        """Lets the index stall again before pip is started for the download."""

        def emit(self, event: Event) -> None:
            super().emit(event)
            if isinstance(event, Progress) and event.over and event.step.startswith("choosing"):
                index.stall.clear()

    fake = serve(auth="")
    push(fake, layer())
    one = StallingKernel(fake, index, tmp_path)

    async def main() -> None:
        index.stall.clear()  # pip chooses by the whole wheels of this index
        work = asyncio.ensure_future(one.build("print(1)", "app"))
        await wait(lambda: bool(told("choosing versions for app")) or work.done())
        index.stall.set()
        await wait(lambda: bool(told("downloading packages")) or work.done())
        assert not work.done()
        index.stall.set()
        await work

    asyncio.run(main())
    first, *_, last = told("downloading packages")
    assert (first.done, first.total) == (0, 0)  # pip has announced no file yet
    assert (last.done, last.total, last.unit) == (2, 2, Unit.PACKAGES)
    assert (last.over, last.failed) == (True, False)


def building(events: Sequence[Progress]) -> list[Progress]:
    return [one for one in events if one.step == "building the image"]


class Slow(Pods):
    """Runs the commands of a build until a report of them was seen."""

    def __init__(self, fake: FakeRegistry, told: list[Progress]) -> None:
        super().__init__(fake)
        self.told = told

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodResult:
        end = await super().run(pod, beside, lambda event: None)
        from ciao_kernel.builders.dockerfile import instructions
        from ciao_kernel.model import Notice

        last = instructions(self.contexts[-1]["Dockerfile"])[-1]
        emit(Notice(f'[build] time="x" level=info msg="{last.name} {last.rest}"'))
        emit(Notice("[build] RUN echo a line of a command, and no instruction"))
        await wait(lambda: bool(building(self.told)))
        return end


@pytest.mark.parametrize("code", [0, 1])
def test_the_instructions_of_a_build(serve: Serve, tmp_path: Path, code: int) -> None:
    fake = serve(auth="")
    push(fake, layer())
    one = KanikoKernel(fake, tmp_path)
    one.pods = Slow(fake, one.progress)
    if code:
        one.pods.ends.append(PodResult(code))

    def build() -> Any:
        return one.run(packages=("app",))

    if code:
        with pytest.raises(Exception, match="build"):
            build()
    else:
        build()
    first, *_, last = building(one.progress)
    assert first.unit is Unit.STEPS
    assert first.done == first.total - 1 > 0
    assert (last.over, last.failed) == (True, bool(code))
    assert code or last.done == last.total == first.total
