"""Copies of event files that grow, with real processes in the place of commands in pods."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery import event_files
from ciao_kernel.delivery.event_copies import EventCopies, take_returned
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.incoming_files import Listing
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_files import DATA, DONE, FILE, HEADER, HELD
from ciao_kernel.errors import BackendError, NoSuchJob, Refused
from ciao_kernel.model import Event, Job, Notice, Replica, ReplicaStatus, State, Status, TensorBoard
from ciao_kernel.model.queries import Streams, Where
from ciao_kernel.session.tensorboard import copying as module
from ciao_kernel.session.tensorboard.board import Board
from ciao_kernel.session.tensorboard.copying import Copying
from ciao_kernel.session.tensorboard.server import Server
from tests.helpers import tensorboard
from tests.helpers.event_writer import WRITER
from tests.helpers.jobs import wait
from tests.integration.test_transfers import Pod

WORKER = Replica("worker", 0)
NAME = "events.out.tfevents.1.host.1.0"


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    logs = tmp_path / "pod/logs/train"
    logs.mkdir(parents=True)
    (logs / NAME).write_bytes(b"one ")
    (logs / "other.txt").write_text("no event file")
    return Pod(tmp_path / "pod")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        "mnist",
        "kubernetes",
        "python",
        (WORKER, Replica("worker", 1)),
        0.0,
        kind_of_place="namespace",
        folder=str(tmp_path / "here"),
    )


def copies(job: Job, limit: int = 10**6) -> EventCopies:
    return EventCopies(job, WORKER, "logs", limit, pause=0.02)


def copy(job: Job) -> Path:
    return event_files.copies(job, WORKER) / "train" / NAME


def grow(pod: Pod, data: bytes) -> None:
    with (pod.folder / "logs/train" / NAME).open("ab") as file:
        file.write(data)


async def watched(work: Awaitable[object], then: Callable[[], Awaitable[None]]) -> None:
    """Let something happen while event files are copied, and end the connection."""
    task = asyncio.ensure_future(work)
    try:
        await then()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def has(job: Job, data: bytes) -> Callable[[], bool]:
    return lambda: copy(job).exists() and copy(job).read_bytes() == data


def test_a_copy_follows_its_file(pod: Pod, job: Job) -> None:
    async def then() -> None:
        await wait(has(job, b"one "), 60)
        grow(pod, b"two ")
        await wait(has(job, b"one two "), 60)

    asyncio.run(watched(copies(job).run(pod.execute, sys.executable), then))
    assert [one.name for one in copy(job).parent.iterdir()] == [NAME]
    assert pod.runs == 1


def test_a_later_copy_goes_on_where_the_first_one_stopped(pod: Pod, job: Job) -> None:
    came: list[bytes] = []

    async def execute(command: Sequence[str], streams: Streams) -> int:
        out = streams.out

        def note(data: bytes) -> None:
            came.append(data)
            out(data)

        return await pod.execute(command, Streams(note, streams.err, streams.input))

    async def first() -> None:
        await wait(has(job, b"one "), 60)

    async def second() -> None:
        await wait(has(job, b"one two "), 60)

    asyncio.run(watched(copies(job).run(pod.execute, sys.executable), first))
    grow(pod, b"two ")
    asyncio.run(watched(copies(job).run(execute, sys.executable), second))
    assert b"two " in b"".join(came)
    assert b"one " not in b"".join(came)


def test_two_kernels_copy_the_same_file(pod: Pod, job: Job) -> None:
    async def both() -> None:
        work = [copies(job).run(pod.execute, sys.executable) for _ in range(2)]
        await asyncio.gather(*work)

    async def then() -> None:
        for number in range(20):
            grow(pod, b"%d " % number)
            await asyncio.sleep(0.01)
        whole = (pod.folder / "logs/train" / NAME).read_bytes()
        await wait(has(job, whole), 60)

    asyncio.run(watched(both(), then))


def test_a_file_that_begins_again_is_copied_anew(pod: Pod, job: Job) -> None:
    async def then() -> None:
        grow(pod, b"and more")
        await wait(has(job, b"one and more"), 60)
        (pod.folder / "logs/train" / NAME).write_bytes(b"new")
        await wait(has(job, b"new"), 60)

    asyncio.run(watched(copies(job).run(pod.execute, sys.executable), then))


def test_a_held_pod_gives_the_rest_and_ends_the_command(pod: Pod, job: Job, tmp_path: Path) -> None:
    pod.env = {HELD: str(tmp_path / "marks")}
    (tmp_path / "marks").mkdir()
    assert asyncio.run(copies(job).run(pod.execute, sys.executable))
    assert copy(job).read_bytes() == b"one "
    assert not list((tmp_path / "marks").iterdir())  # it does not count as a fetch


def test_what_came_back_at_the_end_completes_the_copies(pod: Pod, job: Job) -> None:
    asyncio.run(
        watched(copies(job).run(pod.execute, sys.executable), lambda: wait(has(job, b"one "), 60))
    )
    grow(pod, b"last")
    returned = ReturnedFiles(Path(job.files))
    for replica in job.replicas:
        words = ["logs/**/*tfevents*", "logs/train/other.txt"]
        one = Fetch(pod.execute, sys.executable, words, returned.receiver(replica), 10**6)
        asyncio.run(one.run())
    take_returned(job, "logs")
    take_returned(job, "logs")
    assert copy(job).read_bytes() == b"one last"
    other = event_files.copies(job, job.replicas[1]) / "train"
    assert [one.name for one in other.iterdir()] == [NAME]


def test_a_copy_that_cannot_be_completed_keeps_no_other_one_back(job: Job) -> None:
    for number, replica in enumerate(job.replicas):
        files = ReturnedFiles(Path(job.files))
        part = files.new_part()
        part.write_bytes(b"all")
        files.place(str(replica), f"logs/train/{NAME}", part, str(number))
        files.note(replica, Listing())
    record = Path(job.files, ".ciao/returned.json")
    known = json.loads(record.read_text())
    of_first = known["worker-0"]["files"]
    of_first["logs/\0.tfevents"] = of_first.pop(f"logs/train/{NAME}")
    record.write_text(json.dumps(known))
    take_returned(job, "logs")
    other = event_files.copies(job, job.replicas[1]) / "train" / NAME
    assert other.read_bytes() == b"all"


def message(kind: bytes, body: object = b"") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HEADER.pack(kind, len(data)) + data


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (message(FILE, {"path": "../x.tfevents", "offset": 0}), "which nobody has asked for"),
        (message(FILE, {"path": "/etc/tfevents", "offset": 0}), "which nobody has asked for"),
        (message(FILE, {"path": "logs/passwd", "offset": 0}), "which nobody has asked for"),
        (message(FILE, {"path": f"logs/{NAME}", "offset": 7}), "at another place"),
        (message(FILE, {"path": f"logs/{NAME}", "offset": -1}), "at another place"),
        (message(FILE, {"offset": 0}), "something else than files"),
        (message(FILE, b"[" * 100), "something else than files"),
        (message(FILE, b"[" * 100_000), "something else than files"),
        (message(FILE, {"path": f"logs/{NAME}", "offset": 1e999}), "something else than files"),
        (message(DATA, b"data"), "a part of no file"),
        (HEADER.pack(DATA, 1 << 31), "."),
        (
            message(FILE, {"path": f"logs/{NAME}", "offset": 0}) + message(DATA, bytes(2000)),
            "more than fetchLimit, 1.0 kB",
        ),
    ],
)
def test_what_a_pod_sends_is_checked(job: Job, tmp_path: Path, sent: bytes, says: str) -> None:
    async def execute(command: Sequence[str], streams: Streams) -> int:
        streams.out(sent)
        streams.out(message(DONE))
        return 0

    with pytest.raises(BackendError) as caught:
        asyncio.run(copies(job, limit=1000).run(execute, sys.executable))
    assert says in caught.value.message
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]


def test_a_replica_without_python_says_so(pod: Pod, job: Job) -> None:
    async def execute(command: Sequence[str], streams: Streams) -> int:
        streams.err(b"sh: python3: not found\n")
        return 127

    with pytest.raises(BackendError, match="not found"):
        asyncio.run(copies(job).run(execute, "python3"))


@pytest.mark.parametrize(
    ("replicas", "writer"),
    [
        (["ps-0", "worker-0", "chief-0"], "chief-0"),
        (["worker-0", "master-0"], "master-0"),
        (["launcher-0", "worker-1", "worker-0"], "worker-0"),
        (["evaluator-0"], "evaluator-0"),
    ],
)
def test_the_replica_that_writes_in_most_programs(replicas: list[str], writer: str) -> None:
    parts = [one.split("-") for one in replicas]
    members = tuple(Replica(role, int(index)) for role, index in parts)
    assert str(event_files.writer(Job("a", "b", "c", members, 0.0))) == writer


class Cluster(Pod):
    """A backend with one job, whose pod begins late and may end."""

    begins = 0
    """Commands that come before the pod does."""
    over = False

    async def execute(self, job: Job, replica: Replica, *rest: Any) -> int:  # type: ignore[override]
        self.begins -= 1
        if self.begins >= 0 or self.over:
            raise BackendError("it has no pod.")
        return await super().execute(*rest)

    async def find(self, name: str, where: Where) -> tuple[Job, Status]:
        state = State.SUCCEEDED if self.over else State.RUNNING
        assert (name, where.namespace) == ("mnist", "team-a")
        return replace(self.job, uid="17"), Status(state, (ReplicaStatus(WORKER, state),))


@tensorboard.needs_tensorboard
def test_a_board_shows_the_event_files_of_a_pod_that_begins_late(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.05)
    folder = tmp_path / "pod"
    folder.mkdir()
    cluster: Any = Cluster(folder)
    cluster.job = job = replace(job, uid="17", place="team-a", header="%tensorboard=runs\n")
    cluster.begins = 2
    space: dict[str, Any] = {}
    exec(WRITER, space)
    shown: list[Event] = []

    async def main() -> None:
        settings = Settings(storage=tmp_path / "storage", cluster_python=sys.executable)
        board = Board(lambda: settings)
        try:
            await board.show([(cluster, job)], shown.append)
            (event,) = shown
            assert isinstance(event, TensorBoard)
            events = space["Events"](folder / "runs")
            events.scalar("loss", 0.5, 1)
            show = partial(asyncio.to_thread, tensorboard.scalars, event.address, "mnist/worker-0")
            await show(step=1)
            events.scalar("loss", 0.25, 2)
            await show(step=2)
            await board.complete(job)
        finally:
            await board.close()

    asyncio.run(main())
    assert not [one for one in (tmp_path / "storage/tensorboard").iterdir() if one.is_dir()]


class Endless:
    """A backend whose commands do not end."""

    async def execute(self, *_: object) -> int:
        await asyncio.Event().wait()
        raise AssertionError("it is not set")


class Unstarted(Server):
    """A server whose process is not started."""

    closed = False

    async def start(self) -> str:
        self.place()
        return "http://127.0.0.1:6006/"

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.mark.parametrize("closed", [False, True])
def test_a_board_whose_copies_are_of_another_event_loop_is_closed(
    job: Job, tmp_path: Path, *, closed: bool
) -> None:
    """As those of a cell in a subshell, whose loop may be closed before the kernel ends."""
    cluster: Any = Endless()
    job = replace(job, uid="17", place="team-a", header="%tensorboard=logs\n")
    other = replace(job, uid="18", name="other")
    settings = Settings(storage=tmp_path / "storage")
    server = Unstarted(settings.own_folder)
    board = Board(lambda: settings, make=lambda _: server)
    tasks: set[asyncio.Task[Any]] = set()

    async def show() -> None:
        await board.show([(cluster, job), (cluster, other)], lambda _: None)
        tasks.update(asyncio.all_tasks() - {asyncio.current_task()})
        await asyncio.sleep(0)

    async def end() -> None:
        async with asyncio.timeout(60):
            await board.complete(job)
            await board.close()
        if not closed:
            await wait(lambda: all(task.cancelled() for task in tasks), 60)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(show())
    thread = threading.Thread(target=loop.run_forever)
    if closed:
        loop.close()
    else:
        thread.start()
    try:
        asyncio.run(end())
    finally:
        if not closed:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
    assert server.closed
    assert len(tasks) == 2


def test_a_copy_goes_on_in_another_event_loop_when_its_own_is_closed(
    job: Job, tmp_path: Path
) -> None:
    cluster: Any = Endless()
    job = replace(job, uid="17", place="team-a", header="%tensorboard=logs\n")
    settings = Settings(storage=tmp_path / "storage")
    board = Board(lambda: settings, make=lambda _: Unstarted(settings.own_folder))

    async def show() -> set[asyncio.Task[Any]]:
        await board.show([(cluster, job)], lambda _: None)
        return asyncio.all_tasks() - {asyncio.current_task()}

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert len(first.run_until_complete(show())) == 1
    first.close()
    assert len(second.run_until_complete(show())) == 1
    second.run_until_complete(board.close())
    second.close()


@pytest.mark.parametrize("followed", [False, True])
def test_copying_ends_with_the_job_unless_a_cell_follows_its_tries(
    job: Job, pod: Pod, monkeypatch: pytest.MonkeyPatch, followed: bool
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.05)
    cluster: Any = Cluster(pod.folder)
    cluster.job = job = replace(job, uid="17", place="team-a")
    cluster.over = True

    async def main() -> bool:
        settings = Settings()
        copying = Copying(cluster, job, WORKER, "logs", settings, followed=followed)
        task = asyncio.ensure_future(copying.run())
        await wait(lambda: task.done() or cluster.begins < -2, 60)
        task.cancel()
        return not (await asyncio.gather(task, return_exceptions=True))[0]

    assert asyncio.run(main()) is not followed


class Retried(Pod):
    """A backend whose job fails, is gone for a moment, and is there again as its next try."""

    job: Any = None
    looks = 0

    async def execute(self, job: Job, replica: Replica, *rest: Any) -> int:  # type: ignore[override]
        if job.uid != "18":
            raise BackendError("it has no pod.")
        return await super().execute(*rest)

    async def find(self, name: str, where: Where) -> tuple[Job, Status]:
        self.looks += 1
        if self.looks == 1:
            return self.job, Status(State.FAILED, (ReplicaStatus(WORKER, State.FAILED),))
        if self.looks == 2:
            raise NoSuchJob("it is gone.")
        again = replace(self.job, uid="18", first_uid="17", tries=2)
        return again, Status(State.RUNNING, (ReplicaStatus(WORKER, State.RUNNING),))


def test_copying_goes_on_with_the_next_try_of_a_job(
    job: Job, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    cluster: Any = Retried(pod.folder)
    cluster.job = job = replace(job, uid="17", place="team-a", retries=1)

    async def main() -> None:
        settings = Settings(cluster_python=sys.executable)
        copying = Copying(cluster, job, WORKER, "logs", settings, followed=False)
        task = asyncio.ensure_future(copying.run())
        await wait(lambda: task.done() or has(job, b"one ")(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert copy(job).read_bytes() == b"one "


@pytest.mark.parametrize("retries", [0, 1])
def test_copying_ends_if_no_other_try_comes(
    job: Job, pod: Pod, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)

    class Failed(Retried):
        async def find(self, name: str, where: Where) -> tuple[Job, Status]:
            self.looks += 1
            return self.job, Status(State.FAILED, (ReplicaStatus(WORKER, State.FAILED),))

    cluster: Any = Failed(pod.folder)
    cluster.job = job = replace(job, uid="17", place="team-a", retries=retries)
    asyncio.run(Copying(cluster, job, WORKER, "logs", Settings(), followed=False).run())
    assert cluster.looks == (module._BETWEEN_TRIES if retries else 1)


@pytest.mark.parametrize(
    ("limit", "fault", "words"),
    [
        (3.0, None, "its event files have more than fetchLimit, 3 bytes. `%ciao config"),
        (1e6, Refused("pods/exec is forbidden.", code=403), "pods/exec is forbidden."),
        (1e6, 127, "its Python ended with exit code 127."),
        (1e6, BackendError("it has no pod."), ""),
        (1e6, Refused("not found.", code=404), ""),
        (1e6, 137, ""),
    ],
)
def test_why_nothing_can_be_copied_is_said_once(
    job: Job,
    pod: Pod,
    monkeypatch: pytest.MonkeyPatch,
    limit: float,
    fault: BackendError | int | None,
    words: str,
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)

    class Denied(Cluster):
        asked = 0

        async def execute(self, job: Job, replica: Replica, *rest: Any) -> int:  # type: ignore[override]
            self.asked += 1
            self.over = self.asked == 3
            if isinstance(fault, BackendError):
                raise fault
            return fault if fault else await Pod.execute(self, *rest)

    cluster: Any = Denied(pod.folder)
    cluster.job = job = replace(job, uid="17", place="team-a")
    said: list[Event] = []
    settings = Settings(cluster_python=sys.executable, fetch_limit=limit)
    copying = Copying(cluster, job, WORKER, "logs", settings, followed=False, emit=said.append)
    asyncio.run(copying.run())
    begin = f"event files of mnist (worker-0) are not copied: {words}"
    texts = [one.text for one in said if isinstance(one, Notice)]
    assert len(texts) == bool(words)
    assert all(one.startswith(begin) for one in texts)
    assert cluster.asked == (3 if fault else 1)
