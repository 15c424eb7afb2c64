"""Transfers of files, with real processes in the place of commands in pods."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery import incoming_files, site_folder, transfers
from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.output_keeper.program_end import TICK
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.replica_fetch import ReplicaFetch
from ciao_kernel.delivery.replica_files import (
    COPIED,
    COPIES,
    DATA,
    DONE,
    END,
    FAULT,
    FILE,
    HEADER,
    HELD,
    LIST,
)
from ciao_kernel.errors import BackendError, ClusterFault
from ciao_kernel.magics.directives import stored_volumes
from ciao_kernel.model import Job, JobSpec, Replica, Source, SourceFile
from ciao_kernel.model.queries import Streams
from ciao_kernel.session import copying
from ciao_kernel.session.copied import Copied
from ciao_kernel.session.copy_target import CopyTarget
from tests.helpers.command_pod import Pod
from tests.helpers.rights import ordinary_reader
from tests.helpers.signals import wait_until_caught

WORKER = Replica("worker", 0)
FAR = 2.0**32
"""A time in the far future: a mark that has it is never too old."""


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    folder = tmp_path / "pod"
    (folder / "model").mkdir(parents=True)
    (folder / "model/large.bin").write_bytes(os.urandom(3_000_000))
    (folder / "model/run.sh").write_text("#!/bin/sh\n")
    (folder / "model/run.sh").chmod(0o755)
    return Pod(folder)


def fetch(pod: Pod, target: Path, limit: int = 10**9, **more: object) -> Fetch:
    receiver = ReturnedFiles(target).receiver(WORKER)
    words = ["model/", "absent.txt"]
    return Fetch(pod.execute, sys.executable, words, receiver, limit, pause=0.01, **more)  # type: ignore[arg-type]


def equal(pod: Pod, target: Path) -> bool:
    both = [folder / "model/large.bin" for folder in (pod.folder, target)]
    one, other = [hashlib.sha256(path.read_bytes()).hexdigest() for path in both]
    return one == other


def test_files_come_whole_with_their_digests(pod: Pod, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    one = fetch(pod, tmp_path / "here", on_progress=lambda *amounts: seen.append(amounts))
    asyncio.run(one.run())
    assert equal(pod, tmp_path / "here")
    assert os.access(tmp_path / "here/model/run.sh", os.X_OK)
    assert one.listing.missing == ("absent.txt",)
    assert seen[-1] == (3_000_010, 3_000_010)
    assert pod.runs == 1


def test_a_file_that_was_removed_since_an_earlier_fetch_is_told_apart(
    pod: Pod, tmp_path: Path
) -> None:
    returned = ReturnedFiles(tmp_path / "here")

    def bring() -> dict[str, bool]:
        pod.cuts = [1_000_000]  # what came before a cut is here too
        one = fetch(pod, tmp_path / "here")
        asyncio.run(one.run())
        returned.note(WORKER, one.listing)
        return {file.at: file.old for file in returned.files()}

    (pod.folder / "model/a.pt").write_text("a")
    here = bring()
    assert here == {"model/a.pt": False, "model/large.bin": False, "model/run.sh": False}
    (pod.folder / "model/run.sh").unlink()
    assert bring() == here | {"model/run.sh": True}


def test_a_cut_transfer_goes_on_where_it_was(pod: Pod, tmp_path: Path) -> None:
    pod.cuts = [1_000_000, 0, 1_000_000, 500_000]
    asyncio.run(fetch(pod, tmp_path / "here").run())
    assert equal(pod, tmp_path / "here")
    assert pod.runs == 5
    assert not list((tmp_path / "here").rglob("*.part"))


def test_cut_connections_are_told_with_the_file_that_was_coming(pod: Pod, tmp_path: Path) -> None:
    pod.cuts = [1_000_000, 0, 0, 0, 500_000]
    told: list[tuple[str, str]] = []
    one = fetch(pod, tmp_path / "here", on_cut=lambda why: told.append((why, one.current)))
    asyncio.run(one.run())
    assert told == [("the connection was cut.", "model/large.bin")] * 3
    assert one.whole == 2


@pytest.fixture
def waiting(pod: Pod) -> Pod:
    """A pod with a file behind a large one, which is still to be sent while that one comes."""
    (pod.folder / "model/later.bin").write_text("later")
    (pod.folder / "model/last.bin").write_text("last")
    return pod


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(
    ("act", "path", "why"),
    [
        ("unlink", "model/last.bin", "it has vanished"),
        ("truncate", "model/large.bin", "it has become shorter while it was fetched"),
        ("close", "model/last.bin", "Permission denied"),
    ],
)
def test_files_that_cannot_be_fetched_are_named_and_the_others_come(
    waiting: Pod, tmp_path: Path, act: str, path: str, why: str, cut: bool
) -> None:
    def during(done: int, _: int) -> None:
        place = waiting.folder / path
        if act == "unlink":
            place.unlink(missing_ok=True)
        elif act == "close":
            place.chmod(0)
        elif done > 100_000 and place.stat().st_size > 200_000:
            os.truncate(place, 200_000)

    (waiting.folder / "model/last.bin").rename(waiting.folder / "model/z.bin")
    path = path.replace("last", "z")
    waiting.before = ordinary_reader()
    if cut and act != "truncate":
        waiting.cuts = [1_000_000]
    one = fetch(waiting, tmp_path / "here", on_progress=during)
    asyncio.run(one.run())
    # What has vanished before the second connection was never announced by it.
    told = {} if cut and act == "unlink" else {path: why}
    assert one.listing.faults == told
    here = {file.name for file in (tmp_path / "here/model").iterdir()}
    assert here == {"large.bin", "later.bin", "run.sh", "z.bin"} - {Path(path).name}
    assert not list((tmp_path / "here").rglob("*.part"))


def test_the_file_that_was_coming_and_is_gone_after_a_cut_is_named(
    waiting: Pod, tmp_path: Path
) -> None:
    waiting.cuts = [1_000_000]
    one = fetch(
        waiting,
        tmp_path / "here",
        on_cut=lambda _: (waiting.folder / "model/large.bin").unlink(),
    )
    asyncio.run(one.run())
    assert one.listing.faults == {"model/large.bin": "it has vanished"}
    assert (tmp_path / "here/model/later.bin").read_text() == "later"
    assert not list((tmp_path / "here").rglob("*.part"))


def test_a_file_that_is_written_meanwhile_comes_and_is_named(pod: Pod, tmp_path: Path) -> None:
    def during(done: int, size: int) -> None:
        if done < size:
            with (pod.folder / "model/large.bin").open("ab") as file:
                file.write(b"more")

    one = fetch(pod, tmp_path / "here", on_progress=during)
    asyncio.run(one.run())
    assert one.listing.changed == ("model/large.bin",)
    assert (tmp_path / "here/model/large.bin").stat().st_size == 3_000_000


def test_connections_that_bring_nothing_end_it_and_leave_no_part(pod: Pod, tmp_path: Path) -> None:
    pod.cuts = [1_000_000, *[0] * 50]
    with pytest.raises(ClusterFault, match="cut"):
        asyncio.run(fetch(pod, tmp_path / "here").run())
    assert pod.runs == 7
    assert not [path for path in (tmp_path / "here").rglob("*") if path.is_file()]


def test_a_damaged_file_is_fetched_again(pod: Pod, tmp_path: Path) -> None:
    pod.damages = True
    asyncio.run(fetch(pod, tmp_path / "here").run())
    assert equal(pod, tmp_path / "here")
    assert pod.runs == 2


def test_a_file_that_arrives_damaged_each_time_ends_the_transfer(tmp_path: Path) -> None:
    starts: list[int] = []

    async def execute(command: Sequence[str], streams: Streams) -> int:
        starts.append(1)
        assert len(starts) < 50
        text = bytes(len(starts))  # longer each time, so each connection brings something new
        wrong = (END, b"0" * 64)
        return await sends(ONE, *whole("model.pt", text)[:2], wrong)(command, streams)

    into = CopyTarget(tmp_path, "model.pt")
    with pytest.raises(ClusterFault, match=r"model\.pt arrived damaged"):
        asyncio.run(Fetch(execute, sys.executable, ["model.pt"], into, 10**9, pause=0).run())
    assert len(starts) == 6


def test_a_replica_that_falls_silent_is_given_up(tmp_path: Path) -> None:
    async def execute(command: Sequence[str], streams: Streams) -> int:
        await sends(ONE, *whole("model.pt", b"1234")[:2])(command, streams)
        await asyncio.Event().wait()  # frozen, and its connection lives
        return 0

    async def work() -> None:
        into = CopyTarget(tmp_path, "model.pt")
        one = Fetch(execute, sys.executable, ["model.pt"], into, 10**9, silent=0.2)
        async with asyncio.timeout(30):
            await one.run()

    with pytest.raises(BackendError, match=r"has sent nothing for 0\.2 s"):
        asyncio.run(work())
    assert not list(tmp_path.iterdir())


def test_a_replica_that_waits_for_its_turn_is_asked_to_keep_its_files(
    pod: Pod, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    pod.env = {HELD: str(marks)}

    async def work() -> None:
        room = asyncio.Semaphore(1)
        await room.acquire()  # another replica has its turn
        files = ReturnedFiles(tmp_path / "here")
        one = ReplicaFetch(WORKER, files, lambda event: None)
        before: list[list[Path]] = []  # marks of fetches at the begin of each connection

        async def execute(command: Sequence[str], streams: Streams) -> int:
            before.append(list(marks.glob("fetching-*")))
            return await pod.execute(command, streams)

        def make(receiver: Any, **more: Any) -> Fetch:
            return Fetch(execute, sys.executable, ["model/"], receiver, 10**9, alive=0.1, **more)

        running = asyncio.ensure_future(one.run(make, room, waits=True))
        async with asyncio.timeout(60):
            while not (own := list(marks.glob("fetching-*"))):
                await asyncio.sleep(0.05)
            assert (marks / "contact").exists()
            assert not (tmp_path / "here/model").exists()
            assert not (marks / "taken").exists()
            room.release()
            while not one.arrived:
                await asyncio.sleep(0.05)
            assert not (marks / "taken").exists()
            one.release()
            await running
        assert (marks / "taken").exists()
        assert before == [[], own]  # also between the two: another one may end there
        assert not list(marks.glob("fetching-*"))

    asyncio.run(work())
    assert equal(pod, tmp_path / "here")


def test_files_of_a_volume_stay_there_unless_a_word_names_it(pod: Pod, tmp_path: Path) -> None:
    for folder in ("data", "checkpoint", "model/own"):
        (pod.folder / folder).mkdir()
        (pod.folder / folder / "x.pt").write_text("x")
    header = "%volume=claim:data claim:model\n%checkpoint=team"
    for words, found in (
        (["**/*.pt"], {"model/own/x.pt"}),
        (["**/*.pt", "checkpoint/"], {"model/own/x.pt", "checkpoint/x.pt"}),
    ):
        skip = stored_volumes.not_named(header.replace(" claim:model", ""), words)
        target = tmp_path / "-".join(skip)
        receiver = ReturnedFiles(target).receiver(WORKER)
        more = {"skip": skip}
        one = Fetch(pod.execute, sys.executable, words, receiver, 10**6, more=more)
        asyncio.run(one.run())
        assert {str(path.relative_to(target)) for path in target.rglob("*.pt")} == found
    assert stored_volumes.not_named(header, ["model/x"]) == ["data", "checkpoint"]
    assert stored_volumes.not_named("%volume=claim:/data", ["**"]) == []


def test_too_many_bytes_are_refused_before_the_first(pod: Pod, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"3\.0 MB, and fetchLimit is 1\.0 MB"):
        asyncio.run(fetch(pod, tmp_path / "here", 1_000_000).run())
    assert not (tmp_path / "here").exists()


def test_a_replica_that_names_other_folders_is_not_believed(tmp_path: Path) -> None:
    for path in (
        "../a",
        "/etc/passwd",
        "a/../../b",
        "",
        ".ciao/returned.json",
        "a//b",
        7,
    ):
        with pytest.raises(transfers.Damaged):
            incoming_files.checked(path, ["**"])
    assert incoming_files.checked("model/net.pt", ["model/"]) == "model/net.pt"


@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("*a" * 10 + "b", "a" * 1000),
        ("**/a" * 20 + "/b", "a/" * 500 + "c"),
        ("**a" * 20 + "b", "a" * 1000),
        ("**aaaa*aaaab" * 3, "a" * 1000),
    ],
)
def test_no_word_of_a_replica_stops_the_kernel(word: str, path: str) -> None:
    """With backtracking each of them would take longer than the universe is old."""
    assert not incoming_files.is_asked(path, [word])


@pytest.mark.parametrize(
    ("word", "found", "others"),
    [
        ("*.txt", ["a.txt", "a.txt.txt", "a.txt/b"], [".txt", "a/b.txt", "a.txtx"]),
        ("a*b*c", ["abc", "abbcbc", "abc/d"], ["ab/c", "abcb"]),
        ("a/**/b", ["a/b", "a/x/b", "a/b/x/b", "a/.x/b/c"], ["a/xb", "b", "a"]),
        ("**/*.pt", ["x.pt", "a/b/x.pt", "a.pt/b"], [".pt", "a/.x.pt"]),
        ("**", ["a", ".a/b"], []),
        ("a**z", ["az", "a/b/z", "azz"], ["a/b", "ba/z"]),
        ("run-?/**", ["run-1/a", "run-1/.a/b"], ["run-10/a", "run-/a"]),
        ("?a", ["ba"], [".a", "a", "b/a"]),
    ],
)
def test_what_a_word_matches(word: str, found: list[str], others: list[str]) -> None:
    for path in found:
        assert incoming_files.is_asked(path, [word]), path
    for path in others:
        assert not incoming_files.is_asked(path, [word]), path


def sends(*messages: tuple[bytes, object]) -> transfers.Execute:
    """A replica that sends any messages, and then ends."""

    async def execute(command: Sequence[str], streams: Streams) -> int:
        for kind, body in messages:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            streams.out(HEADER.pack(kind, len(data)) + data)
        return 0

    return execute


def whole(path: str, data: bytes, **told: object) -> list[tuple[bytes, object]]:
    about = {"path": path, "size": len(data), "offset": 0, "runs": False, **told}
    return [(FILE, about), (DATA, data), (END, hashlib.sha256(data).hexdigest().encode())]


ONE: tuple[bytes, object] = (LIST, {"files": 1, "bytes": 4, "missing": [], "left_out": []})


@pytest.mark.parametrize("path", [".bashrc", "model.pt2", "other/model.pt"])
def test_a_replica_that_sends_another_file_than_the_one_asked_for_is_refused(
    tmp_path: Path, path: str
) -> None:
    execute = sends(ONE, *whole(path, b"evil"), (DONE, b""))
    into = CopyTarget(tmp_path, "model.pt")
    with pytest.raises(transfers.Damaged, match="nobody has asked for"):
        asyncio.run(Fetch(execute, sys.executable, ["model.pt"], into, 10**9).run())
    with pytest.raises(BackendError, match="is not below"):
        into.part(path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "told",
    [{"size": 3}, {"size": -1}, {"offset": 9}, {"offset": 1e999}, {"mode": "w"}, {"mode": 1e999}],
)
def test_a_replica_that_sends_another_size_than_announced_is_refused(
    tmp_path: Path, told: dict[str, object]
) -> None:
    execute = sends(ONE, *whole("model.pt", b"evil", **told), (DONE, b""))
    into = CopyTarget(tmp_path, "model.pt")
    with pytest.raises(transfers.Damaged, match=r"size|announced|else"):
        asyncio.run(Fetch(execute, sys.executable, ["model.pt"], into, 10**9).run())
    assert not list(tmp_path.iterdir())


def test_no_replica_makes_a_file_that_runs_as_its_owner(tmp_path: Path) -> None:
    execute = sends(ONE, *whole("model.pt", b"evil", mode=0o106755), (DONE, b""))
    into = CopyTarget(tmp_path, "model.pt")
    asyncio.run(Fetch(execute, sys.executable, ["model.pt"], into, 10**9).run())
    assert not (tmp_path / "model.pt").stat().st_mode & 0o7000


def test_a_replica_that_sends_the_same_file_again_and_again_is_refused(tmp_path: Path) -> None:
    listing = {"files": 1, "bytes": 4, "missing": [], "left_out": []}
    execute = sends((LIST, listing), *whole("model/a", b"data"))  # and no last message
    receiver = ReturnedFiles(tmp_path / "here").receiver(WORKER)
    work = Fetch(execute, "python3", ["model/"], receiver, 1000, pause=0.0)
    with pytest.raises(BackendError, match="the replica sent a file twice"):
        asyncio.run(work.run())
    assert (tmp_path / "here/model/a").read_bytes() == b"data"


def test_the_limit_is_for_all_files_that_come_whatever_is_announced(tmp_path: Path) -> None:
    files = [message for number in range(3) for message in whole(f"model/{number}", b"1234")]
    into = CopyTarget(tmp_path / "here", "model")
    one = Fetch(sends(ONE, *files, (DONE, b"")), sys.executable, ["model"], into, 10)
    with pytest.raises(BackendError, match="its files have 12 bytes, and fetchLimit is 10 bytes"):
        asyncio.run(one.run())
    assert into.size == 8


@pytest.mark.parametrize("announced", [1, 4])
def test_the_number_of_files_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, announced: int
) -> None:
    monkeypatch.setattr(incoming_files, "_MOST_FILES", 3)
    files = [message for number in range(4) for message in whole(f"model/{number}", b"")]
    told = (LIST, {"files": announced, "bytes": 0, "missing": [], "left_out": []})
    into = CopyTarget(tmp_path / "here", "model")
    one = Fetch(sends(told, *files, (DONE, b"")), sys.executable, ["model"], into, 10)
    with pytest.raises(BackendError, match="it has 4 files, and at most 3 are fetched"):
        asyncio.run(one.run())
    assert into.count == (3 if announced == 1 else 0)


@pytest.mark.parametrize(
    ("target", "place"), [("in/", "in/data/a.txt"), ("other", "other/a.txt"), (".", "data/a.txt")]
)
def test_files_are_sent_whole_too(pod: Pod, tmp_path: Path, target: str, place: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.txt").write_text("a")
    sent = asyncio.run(transfers.send(pod.execute, sys.executable, tmp_path / "data", target))
    assert sent.sizes == {"data/a.txt": 1}
    assert (pod.folder / place).read_text() == "a"
    assert not list(pod.folder.rglob("*.ciao-part"))


def test_a_name_may_be_as_long_as_the_file_system_allows(pod: Pod, tmp_path: Path) -> None:
    name = "n" * 255
    (tmp_path / name).write_text("a")
    asyncio.run(transfers.send(pod.execute, sys.executable, tmp_path / name, "in/"))
    assert [path.name for path in (pod.folder / "in").iterdir()] == [name]
    into = CopyTarget(tmp_path / "here" / name, "in")
    asyncio.run(Fetch(pod.execute, sys.executable, [f"in/{name}"], into, 10**9).run())
    assert [path.name for path in (tmp_path / "here").iterdir()] == [name]


def test_a_folder_that_cannot_be_written_is_said(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(BackendError, match=r"(File exists|Not a directory): model/run\.sh/x"):
        asyncio.run(
            transfers.send(pod.execute, sys.executable, tmp_path / "a.txt", "model/run.sh/x")
        )


# ------------------------------------------------------------------- the keeper in a pod


def test_what_a_replica_names_is_cut_and_counted(tmp_path: Path) -> None:
    faults: list[tuple[bytes, object]] = [
        (FAULT, {"path": f"{n}" + "x" * 5000, "why": "y" * 5000}) for n in range(3000)
    ]
    into = CopyTarget(tmp_path, "model.pt")
    one = Fetch(sends(ONE, *faults, (DONE, b"")), sys.executable, ["model.pt"], into, 10**9)
    asyncio.run(one.run())
    assert len(one.listing.faults) == 2000
    assert max(map(len, one.listing.faults)) == 1024
    assert max(map(len, one.listing.faults.values())) == 120


@dataclass
class Cluster:
    """The backend of a job with one pod; a file may vanish when a command begins."""

    pod: Pod
    vanishing: Path | None = None

    async def execute(self, job: Job, _: Replica, *words: Any) -> int:
        if self.vanishing:
            self.vanishing.unlink()
        return await self.pod.execute(*words)


def test_a_copy_names_what_could_not_be_copied(pod: Pod, tmp_path: Path) -> None:
    (pod.folder / "model/run.sh").chmod(0)
    (pod.folder / "model/up").symlink_to(pod.folder)
    pod.before = ordinary_reader()
    python = tmp_path / "my env" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    header = f"%python='{python}'\n"  # as it is stored
    job = Job(
        "job", "kubernetes", "python", (WORKER,), 1.0, kind_of_place="namespace", header=header
    )
    cluster: Any = Cluster(pod)

    def take(source: str) -> Copied:
        work = copying.take(cluster, job, WORKER, source, tmp_path / "here/", Settings())
        return asyncio.run(work)

    copied = take("model")
    assert copied.text == (
        "1 file, 3.0 MB; "
        "links to folders or out of the folder, and what is no file, are left out: model/up"
    )
    assert copied.faults == {"model/run.sh": "Permission denied"}
    with pytest.raises(BackendError, match=r"nothing could be copied .*run\.sh \(Perm"):
        take("model/run.sh")
    with pytest.raises(BackendError, match=r"nothing of model/up .* are left out: up\."):
        take("model/up")


@pytest.mark.parametrize("path", ["", ".", "model/.."])
def test_a_dot_is_all_that_is_in_a_folder_of_a_pod(pod: Pod, tmp_path: Path, path: str) -> None:
    for name in (".hidden", ".ciao/own"):
        (pod.folder / name).parent.mkdir(exist_ok=True)
        (pod.folder / name).write_text("a")
    job = Job("job", "kubernetes", "python", (WORKER,), 1.0, kind_of_place="namespace")
    cluster: Any = Cluster(pod)
    settings = Settings(cluster_python=sys.executable)
    here = tmp_path / "here"
    told = asyncio.run(copying.take(cluster, job, WORKER, path, here, settings))
    assert told.text == "3 files, 3.0 MB"
    found = {str(one.relative_to(here)) for one in here.rglob("*") if one.is_file()}
    assert found == {".hidden", "model/large.bin", "model/run.sh"}


def test_files_of_this_machine_that_cannot_be_read_are_named_and_the_others_go(
    pod: Pod, tmp_path: Path
) -> None:
    job = Job("job", "kubernetes", "python", (WORKER,), 1.0, kind_of_place="namespace")
    settings = Settings(cluster_python=sys.executable)
    (tmp_path / "data").mkdir()
    for name in "abc":
        (tmp_path / "data" / name).write_text(name)

    def give(source: str, vanishing: str) -> Copied:
        cluster: Any = Cluster(pod, tmp_path / vanishing)
        work = copying.give(cluster, job, WORKER, tmp_path / source, "in", settings)
        return asyncio.run(work)

    copied = give("data", "data/b")
    assert copied.text == "2 files, 2 bytes"
    assert copied.faults == {"data/b": "it has vanished"}
    assert sorted(path.name for path in (pod.folder / "in").iterdir()) == ["a", "c"]
    with pytest.raises(BackendError, match=r"data/a cannot be read: it has vanished"):
        give("data/a", "data/a")


def test_a_replica_removes_its_part_of_a_file_whose_rest_does_not_come(pod: Pod) -> None:
    async def rest() -> AsyncIterator[bytes]:
        for name, last in (("a", (FAULT, b"")), ("b", (END, hashlib.sha256(b"x").hexdigest()))):
            about = json.dumps({"path": name, "below": "", "mode": 0o644})
            for kind, text in ((FILE, about), (DATA, "x"), last):
                body = text.encode() if isinstance(text, str) else text
                yield HEADER.pack(kind, len(body)) + body
        yield HEADER.pack(DONE, 0)

    out = bytearray()
    request = {"do": "receive", "path": "in/"}
    command = transfers.called(sys.executable, request, out.extend, out.extend, rest())
    assert asyncio.run(pod.execute(*command)) == 0
    assert [path.name for path in (pod.folder / "in").iterdir()] == ["b"]


def test_a_file_whose_rest_cannot_be_read_is_named(pod: Pod) -> None:
    """The memory of a process can be opened, and not be read at its beginning."""
    sent = asyncio.run(transfers.send(pod.execute, sys.executable, Path("/proc/self/mem"), "copy/"))
    assert sent.sizes == {}
    assert sent.faults == {"mem": "Input/output error"}
    assert not list((pod.folder / "copy").iterdir())


@pytest.fixture
def keeper(pod: Pod, tmp_path: Path) -> list[str]:
    """The keeper as it is delivered, and the folder for its marks."""
    source = Source(SourceFile("program.py", b""))
    for file in results.with_files(source, JobSpec("python", outputs=("model/",))).own:
        place = pod.folder / file.path
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(file.data or b"")
    (tmp_path / "marks").mkdir()
    return [sys.executable, "-I", "-S", str(pod.folder / site_folder.FOLDER / results.KEEPER)]


def beside(marks: Path) -> dict[str, str]:
    """Variables of a container that sees copies of the files."""
    return {HELD: str(marks), COPIED: str(marks / COPIES)}


def program(
    keeper: list[str], marks: Path, text: str, copies: str = "", grace: float = 0.5
) -> list[str]:
    words = ["run", str(marks), str(grace), copies, "10000000", "model/", "--"]
    return [*keeper, *words, sys.executable, "-c", text]


def test_the_program_keeps_its_exit_code_and_its_copies(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    command = program(keeper, marks, "raise SystemExit(7)", str(marks / "files"))
    assert subprocess.run(command, cwd=pod.folder, check=False).returncode == 7
    other = Pod(marks, env=beside(marks))
    asyncio.run(fetch(other, tmp_path / "here").run())
    assert equal(pod, tmp_path / "here")
    killed = program(keeper, marks, "import os; os.kill(os.getpid(), 9)")
    assert subprocess.run(killed, cwd=pod.folder, check=False).returncode == 137


def test_event_files_that_are_too_large_do_not_keep_the_copies_back(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    marks, events = tmp_path / "marks", pod.folder / "runs/a/x.tfevents.1"
    events.parent.mkdir(parents=True)
    events.write_bytes(bytes(10_000_000))
    command = program(keeper, marks, "pass", str(marks / "files"))
    command.insert(command.index("--"), "runs/**/*tfevents*")
    assert subprocess.run(command, cwd=pod.folder, check=False).returncode == 0
    other = Pod(marks, env=beside(marks))
    receiver = ReturnedFiles(tmp_path / "here").receiver(WORKER)
    words = ["model/", "runs/**/*tfevents*"]
    one = Fetch(other.execute, sys.executable, words, receiver, 10_000_000)
    asyncio.run(one.run())
    assert equal(pod, tmp_path / "here")
    assert one.listing.faults == {"runs/a/x.tfevents.1": "all files together are too large"}


def test_marks_are_no_files_of_a_program_that_was_killed_with_its_parent(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    (marks / "replica").write_text("worker-0")
    receiver = ReturnedFiles(tmp_path / "here").receiver(WORKER)
    one = Fetch(Pod(marks, env=beside(marks)).execute, sys.executable, ["*"], receiver, 1000)
    asyncio.run(one.run())
    assert one.listing.files == 0
    assert one.listing.missing == ("*",)
    assert not (tmp_path / "here").exists()


def test_a_file_that_cannot_be_copied_for_the_other_container_is_named(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    text = "import os; os.chmod('model/run.sh', 0)"
    command = program(keeper, marks, text, str(marks / "files"))
    subprocess.run([*ordinary_reader(), *command], cwd=pod.folder, check=True)
    one = fetch(Pod(marks, env=beside(marks)), tmp_path / "here")
    asyncio.run(one.run())
    assert one.listing.faults == {"model/run.sh": "Permission denied"}
    assert equal(pod, tmp_path / "here")


@pytest.mark.parametrize("taken", ["files", "too-large"])
def test_a_program_succeeds_although_its_files_cannot_be_copied(
    keeper: list[str], pod: Pod, tmp_path: Path, taken: str
) -> None:
    """As on a full disk: something else has the name of the folder, or of a mark."""
    marks = tmp_path / "marks"
    copies, limit = marks / "files", "10000000"
    if taken == "files":
        (marks / "files").write_text("")
        copies, why = marks / "files/copies", "Not a directory"
    else:
        (marks / "too-large").mkdir()
        limit, why = "1", "Is a directory"
    command = program(keeper, marks, "print('done')", str(copies))
    command[command.index("10000000")] = limit
    done = subprocess.run(command, cwd=pod.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == f"ciao: the files of %output could not be copied: {why}\n"
    one = fetch(Pod(marks, env={HELD: str(marks), COPIED: str(copies)}), tmp_path / "here")
    asyncio.run(one.run())
    assert one.listing.faults == {"model/": why}
    assert one.listing.missing == ("absent.txt",)  # another word of the fetch


def test_a_program_that_is_told_to_end_gets_the_signal_and_then_is_killed(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    text = (
        "import os, signal, time\n"
        # The signal may come within the other print, and print is not reentrant.
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'told\\n'))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(1)\n"
    )
    # The grace is so long that a busy machine writes the line before it is over.
    command = program(keeper, tmp_path / "marks", text, grace=10.0)
    with subprocess.Popen(command, cwd=pod.folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "told\n"
        assert process.wait() == 137
    assert (tmp_path / "marks/stopped").exists()


@contextlib.contextmanager
def kept(keeper: list[str], marks: Path, patience: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*keeper, "keep", str(marks), patience]) as process:
        try:
            wait_until_caught(process.pid, signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
            yield process
        except BaseException:
            process.kill()  # a test that has failed does not wait for it
            raise


def test_files_are_kept_until_they_are_fetched(keeper: list[str], pod: Pod, tmp_path: Path) -> None:
    with kept(keeper, tmp_path / "marks", "600") as process:

        async def work() -> None:
            pod.env = {HELD: str(tmp_path / "marks")}
            one = fetch(pod, tmp_path / "here", waits=True)
            running = asyncio.ensure_future(one.run())
            await one.arrived.wait()
            assert process.poll() is None
            one.release()
            await running

        asyncio.run(work())
        assert process.wait() == 0
    assert equal(pod, tmp_path / "here")


def test_files_are_kept_until_all_who_fetch_them_have_them(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    """The quicker one ends what keeps them, and with it the connection of the other."""
    marks = tmp_path / "marks"
    with kept(keeper, marks, "600") as process:

        async def work() -> None:
            pod.env = {HELD: str(marks)}
            quick, slow = (fetch(pod, tmp_path / name, waits=True) for name in ("quick", "slow"))
            going = [asyncio.ensure_future(one.run()) for one in (quick, slow)]
            await asyncio.gather(quick.arrived.wait(), slow.arrived.wait())
            quick.release()
            await going[0]
            assert (marks / "taken").exists()
            await asyncio.sleep(10 * TICK)  # it has looked for that mark some times
            assert process.poll() is None
            slow.release()
            await going[1]

        asyncio.run(work())
        assert process.wait() == 0


def test_who_was_killed_while_he_fetched_files_keeps_them_no_longer(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    with kept(keeper, marks, "600") as process:

        async def work() -> None:
            pod.env = {HELD: str(marks)}
            one = fetch(pod, tmp_path / "here", waits=True)
            going = asyncio.ensure_future(one.run())
            await one.arrived.wait()
            (marks / "taken").touch()  # another one has them
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
            (own,) = marks.glob("fetching-*")
            os.utime(own, (FAR, FAR))
            await asyncio.sleep(10 * TICK)
            assert process.poll() is None  # a connection that was cut looks the same
            os.utime(own, (0, 0))  # long ago

        asyncio.run(work())
        assert process.wait() == 0


class CutFetch:
    """A fetch whose first connection is cut; it opens the next one after ``again``."""

    def __init__(
        self, pod: Pod, target: Path, first: transfers.Execute, *, waits: bool = False
    ) -> None:
        self.again, self._was_cut = asyncio.Event(), asyncio.Event()

        async def execute(command: Sequence[str], streams: Streams) -> int:
            if not self._was_cut.is_set():
                return await first(command, streams)
            await self.again.wait()
            return await pod.execute(command, streams)

        self.fetch = Fetch(
            execute, sys.executable, ["model/"], ReturnedFiles(target).receiver(WORKER), 10**9,
            waits=waits, pause=0.0, on_cut=lambda _: self._was_cut.set(), silent=10.0**6,
        )  # fmt: skip

    async def start(self, marks: Path) -> Path:
        """Run it until the cut; return its mark, which stays young."""
        self.running = asyncio.ensure_future(self.fetch.run())
        await self._was_cut.wait()
        (own,) = marks.glob("fetching-*")
        os.utime(own, (FAR, FAR))
        return own


def test_files_are_kept_for_a_fetch_that_was_cut_while_another_one_ended(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    with kept(keeper, marks, "600") as process:

        async def work() -> None:
            pod.env = {HELD: str(marks)}
            pod.cuts = [1_000_000]
            cut = CutFetch(pod, tmp_path / "cut", pod.execute, waits=True)
            await cut.start(marks)
            other = fetch(pod, tmp_path / "other", waits=True)
            going = asyncio.ensure_future(other.run())
            await other.arrived.wait()
            other.release()
            await going
            assert (marks / "taken").exists()
            await asyncio.sleep(10 * TICK)  # it has looked for that mark some times
            assert process.poll() is None
            cut.again.set()
            await cut.fetch.arrived.wait()
            cut.fetch.release()
            await cut.running
            assert not list(marks.glob("fetching-*"))

        asyncio.run(work())
        assert process.wait() == 0
    assert equal(pod, tmp_path / "cut")


def test_files_are_kept_for_a_fetch_that_is_cut_after_the_last_byte_was_sent(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    """What is on the way is not here; `ciao fetch` does not say when it is."""
    marks = tmp_path / "marks"
    with kept(keeper, marks, "600") as process:

        async def work() -> None:

            async def sent_whole(command: Sequence[str], streams: Streams) -> int:
                sent = bytearray()
                assert await pod.execute(command, replace(streams, out=sent.extend)) == 0
                streams.out(bytes(sent[:1_000_000]))
                raise ClusterFault("the connection was cut.")

            pod.env = {HELD: str(marks)}
            cut = CutFetch(pod, tmp_path / "cut", sent_whole)
            own = await cut.start(marks)
            (marks / "taken").touch()  # another one has them
            await asyncio.sleep(10 * TICK)
            assert process.poll() is None
            cut.again.set()
            await cut.running
            os.utime(own, (0, 0))  # long ago

        asyncio.run(work())
        assert process.wait() == 0
    assert equal(pod, tmp_path / "cut")


def test_fetches_of_an_earlier_try_keep_no_files(
    keeper: list[str], pod: Pod, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    (marks / "fetching-0123").touch()
    (marks / "pod").touch()
    subprocess.run(program(keeper, marks, "pass"), cwd=pod.folder, check=True)
    assert not list(marks.glob("fetching-*"))
    assert (marks / "pod").exists()


def test_files_are_not_kept_for_a_kernel_that_is_frozen(pod: Pod, tmp_path: Path) -> None:
    """Its connection lives on, so only its silence tells."""
    pod.env = {HELD: str(tmp_path / "marks")}
    (tmp_path / "marks").mkdir()
    one = fetch(pod, tmp_path / "here", waits=True, alive=10**6, unheard=0.2)
    asyncio.run(one.run())  # it ends, and nobody has released it
    assert one.arrived.is_set()
    assert not (tmp_path / "marks/taken").exists()


def test_files_are_kept_as_long_as_the_kernel_shows_that_it_lives(pod: Pod, tmp_path: Path) -> None:
    async def work() -> None:
        signs = asyncio.Semaphore(0)

        async def execute(command: list[str], streams: Streams) -> int:
            async def given() -> AsyncIterator[bytes]:
                async for piece in streams.input:
                    yield piece
                    if piece == b"\n":
                        signs.release()

            return await pod.execute(command, replace(streams, input=given()))

        receiver = ReturnedFiles(tmp_path / "here").receiver(WORKER)
        one = Fetch(
            execute,  # type: ignore[arg-type]
            sys.executable,
            ["model/"],
            receiver,
            10**9,
            waits=True,
            alive=0.1,
            unheard=15.0,
        )
        running = asyncio.ensure_future(one.run())
        await one.arrived.wait()
        until = time.monotonic() + 17  # longer than it would wait without signs
        while time.monotonic() < until:
            sign = asyncio.ensure_future(signs.acquire())
            await asyncio.wait({sign, running}, return_when=asyncio.FIRST_COMPLETED)
            assert not running.done()
        one.release()
        await running

    asyncio.run(work())


@pytest.mark.parametrize(("mark", "patience"), [("stopped", "600"), ("", "0.2")])
def test_files_are_not_kept_for_a_stop_or_for_nobody(
    keeper: list[str], tmp_path: Path, mark: str, patience: str
) -> None:
    if mark:
        (tmp_path / "marks" / mark).touch()
    with kept(keeper, tmp_path / "marks", patience) as process:
        assert process.wait() == 0


LOCAL = Job("here", "local", "tensorflow", (WORKER,), 1.0, kind_of_place="folder")


@pytest.mark.parametrize("target", ["/proc/nope/x", "/dev/full/x", "/proc/nope/"])
def test_a_target_of_this_machine_that_cannot_be_written_is_one_error(
    tmp_path: Path, target: str
) -> None:
    (tmp_path / "a.txt").write_text("a")
    job = replace(LOCAL, root=str(tmp_path))
    none: Any = None
    for work in (
        copying.take(none, job, WORKER, "a.txt", Path(target), Settings()),
        copying.give(none, job, WORKER, tmp_path / "a.txt", target, Settings()),
    ):
        with pytest.raises(BackendError, match="cannot be written: "):
            asyncio.run(work)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
