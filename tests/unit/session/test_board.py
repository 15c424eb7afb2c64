"""Which jobs TensorBoard shows, and under which names."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any, cast

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display.terminal import TerminalDisplay
from ciao_kernel.errors import EnvironmentFault, JobFailed
from ciao_kernel.model import Event, Job, Notice, Replica, TensorBoard
from ciao_kernel.session.tensorboard import board as board_module
from ciao_kernel.session.tensorboard import new_job
from ciao_kernel.session.tensorboard.board import Board, Reach
from ciao_kernel.session.tensorboard.server import Server

WORKER = Replica("worker", 0)


class Started(Server):
    """A server whose process is not started."""

    async def start(self) -> str:
        self.place()
        return "http://127.0.0.1:6006/"


def job(folder: Path, name: str = "mnist", **more: Any) -> Job:
    """A job of this machine that has written event files."""
    work = folder / "work"
    (work / "runs").mkdir(parents=True, exist_ok=True)
    header = "%tensorboard=runs\n"
    return Job(
        name, "local", "python", (WORKER,), 0.0, program=f"{work}/cell.py", header=header, **more
    )


def shown(
    settings: Settings, *jobs: Job, reach: Reach | None = None
) -> tuple[Event, dict[str, Path]]:
    """What a cell shows, and the links by name."""

    async def main() -> tuple[Event, dict[str, Path]]:
        board = Board(lambda: settings, lambda: reach or Reach(), Started)
        events: list[Event] = []
        none: Any = None
        for one in jobs:
            await board.show([(none, one)], events.append)
        found = (settings.storage / "tensorboard").glob("*/*")
        links = {link.name: link.readlink() for link in found}
        await board.close()
        return events[-1], links

    return asyncio.run(main())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(storage=tmp_path / "storage")


def test_each_job_has_a_link_to_its_own_folder(settings: Settings, tmp_path: Path) -> None:
    one, two = job(tmp_path / "1", "one"), job(tmp_path / "2", "two")
    event, links = shown(settings, one, two, one)
    assert event == TensorBoard(("one", "two"), "http://127.0.0.1:6006/")
    assert links == {"one": tmp_path / "1/work/runs", "two": tmp_path / "2/work/runs"}
    assert not list((settings.storage / "tensorboard").iterdir())
    assert (tmp_path / "1/work/runs").is_dir()


def test_jobs_of_one_name_are_told_apart(settings: Settings, tmp_path: Path) -> None:
    _, links = shown(settings, job(tmp_path / "1"), job(tmp_path / "2"), job(tmp_path / "3"))
    assert links == {
        "mnist": tmp_path / "1/work/runs",
        "mnist-2": tmp_path / "2/work/runs",
        "mnist-3": tmp_path / "3/work/runs",
    }


def test_a_deleted_job_gives_its_name_to_the_next_one(settings: Settings, tmp_path: Path) -> None:
    deleted = job(tmp_path / "1")
    (tmp_path / "1/work/runs").rmdir()
    _, links = shown(settings, deleted, job(tmp_path / "2"))
    assert links == {"mnist": tmp_path / "2/work/runs"}


def test_the_setting_comes_before_what_is_known_of_the_server(tmp_path: Path) -> None:
    settings = Settings(storage=tmp_path / "storage", tensorboard_url="/mine/%PORT%/")
    event, _ = shown(settings, job(tmp_path), reach=Reach("/other/%PORT%/", remote=True))
    assert isinstance(event, TensorBoard)
    assert event.page == "/mine/6006/"


class Reads(Started):
    """A server that has read the runs of some jobs."""

    read: frozenset[str] = frozenset()

    @property
    def runs(self) -> bool:
        return True

    async def runs_of(self, name: str) -> bool:
        return name in self.read


@pytest.mark.parametrize(
    ("read", "written", "loads"),
    [
        ({"mnist"}, False, [False]),
        (set(), False, [True]),
        (set(), True, [True, False]),
    ],
)
def test_a_page_is_told_again_when_there_is_something_to_show(
    settings: Settings, tmp_path: Path, read: set[str], written: bool, loads: list[bool]
) -> None:
    class Own(Reads):
        pass

    async def main() -> list[Event]:
        board = Board(lambda: settings, lambda: Reach("/proxy/%PORT%/"), Own)
        events: list[Event] = []
        one, none, over = job(tmp_path), cast("Any", None), asyncio.Event()
        Own.read = frozenset(read)
        shown = await board.show([(none, one)], events.append, followed=True)
        assert shown is not None
        filling = asyncio.ensure_future(board.fill(shown, events.append, over))
        await asyncio.sleep(0)
        assert len(events) == 1
        if written:
            (tmp_path / "work/runs/events.out.tfevents.1").touch()
        over.set()
        if written:
            Own.read = frozenset({"mnist"})
        await filling
        await board.close()
        return events

    found = asyncio.run(main())
    assert [one.loads for one in found if isinstance(one, TensorBoard)] == loads
    assert {one.page for one in found if isinstance(one, TensorBoard)} == {"/proxy/6006/"}


NONE = cast("Any", None)
PAGE = Reach("/proxy/%PORT%/")
FILE = "work/runs/events.out.tfevents.1"


def loads(events: list[Event]) -> list[bool]:
    return [one.loads for one in events if isinstance(one, TensorBoard)]


@pytest.mark.parametrize(
    ("written", "read", "told"),
    [
        ((), (), [False]),  # nobody waits for the first files
        (("one",), ("one",), [False]),  # the other job never wrote any
        (("one",), (), [True, False]),  # one that TensorBoard never lists
    ],
)
def test_a_page_of_jobs_that_nobody_follows_is_always_shown(
    settings: Settings,
    tmp_path: Path,
    written: tuple[str, ...],
    read: tuple[str, ...],
    told: list[bool],
) -> None:
    class Own(Reads):
        pass

    async def main() -> list[Event]:
        Own.read = frozenset(read)
        board = Board(lambda: settings, lambda: PAGE, Own, within=0)
        events: list[Event] = []
        jobs = [job(tmp_path / name, name) for name in ("one", "two")]
        for name in written:
            (tmp_path / name / FILE).touch()
        shown = await board.show([(NONE, one) for one in jobs], events.append)
        assert shown is not None
        await board.fill(shown, events.append)
        await board.close()
        return events

    assert loads(asyncio.run(main())) == told


def test_one_job_of_some_that_tensorboard_has_read_is_enough(
    settings: Settings, tmp_path: Path
) -> None:
    class Own(Reads):
        pass

    async def main() -> list[Event]:
        board = Board(lambda: settings, lambda: PAGE, Own)
        events: list[Event] = []
        jobs = [job(tmp_path / name, name) for name in ("one", "two")]
        (tmp_path / "one" / FILE).touch()
        shown = await board.show([(NONE, one) for one in jobs], events.append)
        assert shown is not None
        Own.read = frozenset({"one"})
        await board.fill(shown, events.append)
        await board.close()
        return events

    assert loads(asyncio.run(main())) == [True, False]


@pytest.mark.parametrize("closed", [True, False])
def test_no_page_of_a_tensorboard_that_has_ended_is_told(
    settings: Settings, tmp_path: Path, closed: bool
) -> None:
    made: list[Server] = []

    class Own(Reads):
        ended = False

        @property
        def runs(self) -> bool:
            return not self.ended

        def close(self) -> None:
            self.ended = True
            super().close()

    def make(*values: Any) -> Server:
        made.append(Own(*values))
        return made[-1]

    async def main() -> list[Event]:
        board = Board(lambda: settings, lambda: PAGE, make)
        events: list[Event] = []
        one = job(tmp_path)
        (tmp_path / FILE).touch()
        shown = await board.show([(NONE, one)], events.append, followed=True)
        assert shown is not None
        filling = asyncio.ensure_future(board.fill(shown, events.append, asyncio.Event()))
        await asyncio.sleep(0)
        await (board.close() if closed else asyncio.to_thread(made[0].close))
        await asyncio.wait_for(filling, 60)
        return events

    assert loads(asyncio.run(main())) == [True]
    assert len(made) == 1


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("error", ["", "of the job"])
def test_nothing_waits_for_a_page_after_its_cell(
    settings: Settings, tmp_path: Path, interrupted: bool, error: str
) -> None:
    """Neither after an interrupt while the copies are completed, nor after an error of that.

    The interrupt comes after the job's end, so the cell ends as the job did.
    """

    class Broken(Board):
        async def complete(self, job: Job) -> None:
            completing.set()
            if not interrupted:
                raise RuntimeError("no space left")
            await asyncio.Event().wait()

    completing = asyncio.Event()

    async def main() -> None:
        board = Broken(lambda: settings, lambda: PAGE, Reads)
        display = TerminalDisplay(settings, io.StringIO())

        async def cell() -> None:
            async with new_job.shown(board, NONE, job(tmp_path), display):
                if error:
                    raise JobFailed(error)

        running = asyncio.ensure_future(cell())
        await completing.wait()
        running.cancel()
        if interrupted and not error:
            await running
        else:
            with pytest.raises(JobFailed if interrupted else RuntimeError):
                await running
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            _, left = await asyncio.wait(left, timeout=60)
        assert not left
        await board.close()

    asyncio.run(main())


def test_an_answer_that_is_cut_off_tells_no_runs(settings: Settings, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        answered.append(1)
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n["mnist')
        writer.close()

    answered: list[int] = []

    async def main() -> bool:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as there:
            port = there.sockets[0].getsockname()[1]
            program = tmp_path / "python"
            program.write_text(f"#!/bin/sh\necho http://127.0.0.1:{port}/\nexec cat\n")
            program.chmod(0o700)
            server = Server(settings.own_folder, str(program))
            await server.start()
            try:
                return await server.runs_of("mnist")
            finally:
                await asyncio.to_thread(server.close)

    assert not asyncio.run(main())
    assert answered


def test_behind_a_gateway_the_sentence_says_what_works(settings: Settings, tmp_path: Path) -> None:
    remote = Reach(remote=True)
    event, links = shown(settings, job(tmp_path), reach=remote)
    assert isinstance(event, Notice)
    assert event.text.endswith("%plot=loss draws curves in the cell.")
    far = job(tmp_path, kind_of_place="namespace", options="--namespace team-b")
    event, links = shown(settings, far, reach=remote)
    assert isinstance(event, Notice)
    assert "`ciao tensorboard mnist --namespace team-b` in a terminal" in event.text
    assert not links


def test_a_link_that_cannot_be_made_is_an_error_of_its_job(
    settings: Settings, tmp_path: Path
) -> None:
    class Occupied(Started):
        async def start(self) -> str:
            (self.place() / "mnist").mkdir()  # where the link would be
            return await super().start()

    async def main() -> None:
        board = Board(lambda: settings, Reach, Occupied)
        none: Any = None
        await board.show([(none, job(tmp_path / "1"))], lambda _: None)

    with pytest.raises(EnvironmentFault, match=r"TensorBoard cannot show mnist: .*File exists"):
        asyncio.run(main())


def test_a_python_that_is_gone_is_an_error_of_tensorboard(
    settings: Settings, tmp_path: Path
) -> None:
    server = Server(settings.own_folder, str(tmp_path / "python"))
    with pytest.raises(EnvironmentFault, match=r"TensorBoard did not start: .*No such file"):
        asyncio.run(server.start())
    assert {one.suffix for one in (settings.storage / "tensorboard").iterdir()} == {"", ".log"}
    server.close()
    assert not list((settings.storage / "tensorboard").iterdir())


def test_each_job_has_its_own_replicas_of_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copied: list[tuple[str, str]] = []

    class Noted:
        """Notes whose event files would be copied."""

        def __init__(self, _: Any, one: Job, replica: Replica, *__: Any, **___: Any) -> None:
            copied.append((one.name, str(replica)))

        async def run(self) -> None:
            """Copy nothing."""

    monkeypatch.setattr(board_module, "Copying", Noted)

    def sized(name: str, count: int) -> Job:
        replicas = tuple(Replica("worker", number) for number in range(count))
        return Job(
            name, "kubernetes", "python", replicas, 1.0, place="team",
            kind_of_place="namespace", uid=name, folder=str(tmp_path / name),
        )  # fmt: skip

    jobs = [sized("four", 4), sized("two", 2), sized("one", 1)]

    def show(*names: str) -> tuple[list[tuple[str, str]], list[str]]:
        copied.clear()
        events: list[Event] = []

        async def main() -> None:
            board = Board(lambda: Settings(storage=tmp_path), Reach, Started)
            await board.show([(NONE, one) for one in jobs], events.append, names)
            await board.close()

        asyncio.run(main())
        return list(copied), [one.text for one in events if isinstance(one, Notice)]

    every = [(one.name, str(replica)) for one in jobs for replica in one.replicas]
    assert show("worker") == (every, [])
    assert show() == ([one for one in every if one[1] == "worker-0"], [])
    assert show("worker-1") == (
        [("four", "worker-1"), ("two", "worker-1")],
        ["one has no replica worker-1: nothing new is copied."],
    )
