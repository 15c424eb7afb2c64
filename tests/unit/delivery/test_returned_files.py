"""The names that files of several replicas get in the job's folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ciao_kernel.delivery.incoming_files import Listing
from ciao_kernel.delivery.output import results, returned_places
from ciao_kernel.delivery.output.large_values import LargeValues
from ciao_kernel.delivery.output.returned_files import ReturnedFiles
from ciao_kernel.delivery.transfers import size_text
from ciao_kernel.model import Job, Replica, State, Status
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.session import returned_values
from tests.helpers.growth import is_linear

BOTH = "model/2.pt (1 byte, worker-0, worker-1), notes.csv (1 byte, worker-0)"
FIRST, SECOND, THIRD = (Replica("worker", number) for number in range(3))


def put(folder: Path, replica: Replica, path: str, text: str, tries: int = 1) -> None:
    receiver = ReturnedFiles(folder, tries).receiver(replica)
    part = receiver.part(path)
    part.write_text(text)
    receiver.place(path, part, hashlib.sha256(text.encode()).hexdigest(), 0o644)


def test_a_file_of_one_replica_keeps_its_path(tmp_path: Path) -> None:
    put(tmp_path, FIRST, "model/net.pt", "net")
    put(tmp_path, FIRST, "model/net.pt", "newer")
    assert (tmp_path / "model/net.pt").read_text() == "newer"
    (one,) = ReturnedFiles(tmp_path).files()
    assert (one.at, one.size, one.replicas) == ("model/net.pt", 5, ("worker-0",))


def test_replicas_that_are_expected_gave_nothing_yet(tmp_path: Path) -> None:
    returned = ReturnedFiles(tmp_path)
    returned.expect([FIRST, SECOND])
    again = ReturnedFiles(tmp_path)
    assert (again.known, again.files(), again.missing()) == (False, [], ())
    assert not again.has_some(FIRST)
    assert not again.has_all(FIRST, "pod")
    again.note(FIRST, Listing())
    again.expect([FIRST])
    assert (again.known, again.has_some(FIRST)) == (True, True)


def test_two_who_take_the_files_of_one_job_lose_nothing_of_each_other(tmp_path: Path) -> None:
    ours, theirs = ReturnedFiles(tmp_path), ReturnedFiles(tmp_path)
    digests = {text: hashlib.sha256(text.encode()).hexdigest() for text in ("a", "b", "c")}
    for files, replica, text in ((ours, FIRST, "a"), (theirs, SECOND, "b"), (ours, THIRD, "c")):
        receiver = files.receiver(replica)
        part = receiver.part("log.csv")
        part.write_text(text)
        receiver.place("log.csv", part, digests[text], 0o644)
    theirs.note(SECOND, Listing(files=1))
    ours.note(FIRST, Listing(files=1))
    found = ReturnedFiles(tmp_path)
    places = {str(place.relative_to(tmp_path)) for _, _, place in found.of_replicas()}
    assert places == {f"worker-{number}/log.csv" for number in range(3)}
    assert [(tmp_path / place).read_text() for place in sorted(places)] == ["a", "b", "c"]
    assert found.has_some(FIRST)
    assert found.has_some(SECOND)


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_a_record_that_cannot_be_read_is_written_anew(content: str, tmp_path: Path) -> None:
    put(tmp_path, FIRST, "step", "1")
    ReturnedFiles(tmp_path).note(FIRST, Listing())
    (record,) = tmp_path.rglob("returned.json")
    record.write_text(content)
    put(tmp_path, SECOND, "step", "1")
    assert [one.replicas for one in ReturnedFiles(tmp_path).files()] == [("worker-1",)]


def test_different_files_of_one_path_go_into_folders_of_their_replicas(tmp_path: Path) -> None:
    put(tmp_path, FIRST, "log.csv", "a")
    put(tmp_path, SECOND, "log.csv", "b")
    put(tmp_path, THIRD, "log.csv", "c")
    assert not (tmp_path / "log.csv").exists()
    places = [tmp_path / f"worker-{number}/log.csv" for number in range(3)]
    assert [place.read_text() for place in places] == ["a", "b", "c"]


def test_files_that_become_equal_are_one_file_again(tmp_path: Path) -> None:
    put(tmp_path, FIRST, "step", "1")
    put(tmp_path, SECOND, "step", "2")
    put(tmp_path, FIRST, "step", "2")
    (one,) = ReturnedFiles(tmp_path).files()
    assert (one.at, one.replicas) == ("step", ("worker-0", "worker-1"))
    assert (tmp_path / "step").read_text() == "2"
    assert not list(tmp_path.rglob("worker-*/step"))


def test_a_file_takes_the_place_of_another_ones(tmp_path: Path) -> None:
    put(tmp_path, FIRST, "step", "1")
    for replica in (SECOND, THIRD):
        put(tmp_path, replica, "step", "2")
    put(tmp_path, SECOND, "step", "3")
    places = {one.at: one.replicas for one in ReturnedFiles(tmp_path).files()}
    assert places == {f"worker-{n}/step": (f"worker-{n}",) for n in range(3)}
    texts = [(tmp_path / f"worker-{number}/step").read_text() for number in range(3)]
    assert texts == ["1", "3", "2"]


def test_equal_files_are_one_file(tmp_path: Path) -> None:
    for replica in (FIRST, SECOND):
        put(tmp_path, replica, "log.csv", "a")
    (one,) = ReturnedFiles(tmp_path).files()
    assert (one.at, one.replicas) == ("log.csv", ("worker-0", "worker-1"))
    put(tmp_path, THIRD, "log.csv", "b")
    assert (tmp_path / "worker-0/log.csv").read_text() == "a"
    assert (tmp_path / "worker-2/log.csv").read_text() == "b"


@pytest.mark.parametrize("own_first", [True, False])
def test_a_file_that_moves_apart_replaces_no_file_of_another_path(
    tmp_path: Path, own_first: bool
) -> None:
    different = [(FIRST, "log.csv", "a"), (SECOND, "log.csv", "b")]
    own = [(FIRST, "worker-0/log.csv", "own")]
    for replica, path, text in (*own, *different) if own_first else (*different, *own):
        put(tmp_path, replica, path, text)
    assert contents(tmp_path) == {
        ("worker-0", "log.csv"): "a",
        ("worker-1", "log.csv"): "b",
        ("worker-0", "worker-0/log.csv"): "own",
    }
    places = {one.at for one in ReturnedFiles(tmp_path).files()}
    apart = "worker-0.files/log.csv" if own_first else "worker-0/worker-0/log.csv"
    assert places == {"worker-0/log.csv", "worker-1/log.csv", apart}


def test_the_files_that_are_in_their_places_take_little_time_at_each_new_one(
    tmp_path: Path,
) -> None:
    def choose(number: int) -> None:
        places = {one: f"worker-{one}/log.csv" for one in range(number)}
        replicas = {
            f"worker-{one}": {"files": {"log.csv": {"sha256": str(one), "at": at}}}
            for one, at in places.items()
        }
        found = returned_places.choose(tmp_path, replicas, "log.csv", frozenset(places.values()))
        assert found == {str(one): at for one, at in places.items()}

    assert is_linear(choose, 2000)


def test_the_place_of_a_file_that_the_user_has_removed_stays_its_own(tmp_path: Path) -> None:
    put(tmp_path, FIRST, "worker-0/log.csv", "own")
    (tmp_path / "worker-0/log.csv").unlink()
    put(tmp_path, FIRST, "log.csv", "a")
    put(tmp_path, SECOND, "log.csv", "b")
    put(tmp_path, FIRST, "worker-0/log.csv", "newer")
    assert set(contents(tmp_path).values()) == {"a", "b", "newer"}


@pytest.mark.parametrize(
    "files",
    [
        [(FIRST, "a", "1"), (SECOND, "a/b", "2")],
        [(FIRST, "a/b", "1"), (SECOND, "a", "2")],
        [(FIRST, "a", "1"), (SECOND, "a", "2"), (THIRD, "a/b", "3")],
        [(FIRST, "worker-0", "1"), (FIRST, "log", "2"), (SECOND, "log", "3")],
        [(FIRST, "log", "1"), (SECOND, "log", "2"), (FIRST, "worker-0", "3")],
        [(FIRST, "worker-0", "1"), (SECOND, "worker-0", "2"), (THIRD, "worker-0", "3")],
        [
            (FIRST, "worker-0.files", "1"),
            (FIRST, "worker-0", "2"),
            (FIRST, "x", "3"),
            (THIRD, "x", "4"),
        ],
        [(FIRST, "worker-0", "1"), (SECOND, "worker-0", "2"), (SECOND, "worker-0", "1")],
    ],
)
def test_a_path_may_be_a_file_here_and_a_folder_there(
    tmp_path: Path, files: list[tuple[Replica, str, str]]
) -> None:
    for replica, path, text in files:
        put(tmp_path, replica, path, text)
    assert contents(tmp_path) == {(str(replica), path): text for replica, path, text in files}
    assert not list(tmp_path.rglob("*.part"))


def contents(folder: Path) -> dict[tuple[str, str], str]:
    """The text of each file, by its replica and its path beside the program."""
    found = ReturnedFiles(folder).of_replicas()
    return {(replica, path): place.read_text() for replica, path, place in found}


def test_the_replicas_of_a_file_are_named_in_their_order(tmp_path: Path) -> None:
    for replica in (Replica("worker", 10), SECOND, FIRST):
        put(tmp_path, replica, "log.csv", "a")
    (one,) = ReturnedFiles(tmp_path).files()
    assert one.replicas == ("worker-0", "worker-1", "worker-10")


@pytest.mark.parametrize("name", ["worker-0.log", "worker-0.try-1.log", "place.json"])
def test_a_file_with_the_name_of_a_log_or_record_does_not_replace_it(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("the log")
    put(tmp_path, FIRST, name, "of the program")
    assert (tmp_path / name).read_text() == "the log"
    assert (tmp_path / "worker-0" / name).read_text() == "of the program"


def test_a_word_is_missing_if_no_replica_has_it(tmp_path: Path) -> None:
    files = ReturnedFiles(tmp_path)
    files.note(FIRST, Listing(missing=("a.txt", "b.txt")))
    faults = {"model/a.pt": "it has vanished"}
    listing = Listing(missing=("b.txt",), left_out=("model/out",), faults=faults, changed=("log",))
    files.note(SECOND, listing)
    again = ReturnedFiles(tmp_path)
    assert again.faults() == ("model/a.pt (worker-1: it has vanished)",)
    assert again.changed() == ("log (worker-1)",)
    assert again.missing() == ("b.txt",)
    assert again.left_out() == ("model/out (worker-1)",)


def test_files_that_only_an_earlier_try_gave_are_named(tmp_path: Path) -> None:
    job = Job("job", "kubernetes", "python", (FIRST, SECOND), 1.0, folder=str(tmp_path))
    faults = {"model/part": "it has vanished"}
    for replica in (FIRST, SECOND):
        put(tmp_path, replica, "model/net.pt", "net")
        put(tmp_path, replica, "model/old.pt", "old")
        first = ReturnedFiles(tmp_path)
        first.note(replica, Listing(missing=("a.txt",), faults=faults))
    put(tmp_path, FIRST, "model/net.pt", "newer", tries=2)
    last = ReturnedFiles(tmp_path, 2)
    last.note(FIRST, Listing(), OutputWay.LOG)
    assert list(returned_values.of_pods(job, ReturnedFiles(tmp_path, 2))) == [
        f"brought back by the log: worker-0/model/net.pt (5 bytes, worker-0), to {tmp_path}",
        "%output: these are of an earlier try of the job, and its last one did not give them: "
        "model/old.pt (3 bytes, worker-0, worker-1), worker-1/model/net.pt (3 bytes, worker-1).",
    ]
    assert "brought back: " not in "".join(returned_values.of_pods(job, ReturnedFiles(tmp_path, 3)))


def test_files_that_the_last_fetch_did_not_find_are_named(tmp_path: Path) -> None:
    job = Job("job", "kubernetes", "python", (FIRST, SECOND), 1.0, folder=str(tmp_path))
    for replica in (FIRST, SECOND):
        put(tmp_path, replica, "model/1.pt", "1")
        put(tmp_path, replica, "model/2.pt", "2")
    put(tmp_path, FIRST, "notes.csv", "a")  # asked for by its name
    last = ReturnedFiles(tmp_path)
    last.note(FIRST, Listing(asked=("model/",), came={"model/2.pt"}), pod="uid")
    brought = f"brought back by exec: model/1.pt (1 byte, worker-0, worker-1), {BOTH}, to "
    assert next(returned_values.of_pods(job, ReturnedFiles(tmp_path))).startswith(brought)
    last.note(SECOND, Listing(asked=("model/",), came={"model/2.pt"}), pod="other")
    returned = ReturnedFiles(tmp_path)
    assert list(returned_values.of_pods(job, returned)) == [
        f"brought back by exec: {BOTH}, to {tmp_path}",
        "%output: these came by an earlier fetch, and the last one did not give them, so the "
        "program may have removed them: model/1.pt (1 byte, worker-0, worker-1).",
    ]
    (tmp_path / "model/1.pt").unlink()  # by the user
    assert returned.has_all(FIRST, "uid")
    put(tmp_path, FIRST, "model/1.pt", "new")
    told = {one.at: one.old for one in ReturnedFiles(tmp_path).files()}
    assert told["worker-0/model/1.pt"] is False
    assert told["worker-1/model/1.pt"] is True


def test_event_files_are_missed_in_the_last_try_alone(tmp_path: Path) -> None:
    """A replica that was lost, and gave nothing in the last try, has the word of an earlier one."""
    none = Listing(missing=("runs/**/*tfevents*",))
    header = "%tensorboard=runs\n"
    job = Job(
        "job", "kubernetes", "tensorflow", (FIRST, SECOND), 1.0, place="team",
        kind_of_place="namespace", header=header, folder=str(tmp_path),
    )  # fmt: skip

    def said(tries: int) -> str:
        return "".join(returned_values.sentences(job, Status(State.SUCCEEDED, (), tries=tries)))

    for replica in (FIRST, SECOND):
        ReturnedFiles(tmp_path, 1).note(replica, none)
    assert "wrote no event files into runs" in said(1)
    ReturnedFiles(tmp_path, 2).note(FIRST, Listing(files=1))
    assert said(2) == ""
    ReturnedFiles(tmp_path, 2).note(FIRST, none)
    assert "wrote no event files into runs" in said(2)


def test_a_file_only_adds_to_what_is_recorded(tmp_path: Path) -> None:
    """To write all of it for each file takes a time that grows with the square of the files."""
    receiver, steps = ReturnedFiles(tmp_path).receiver(FIRST), set[int]()
    for number in range(100):
        old = {path: path.read_bytes() for path in tmp_path.rglob("returned.j*")}
        part = receiver.part(f"{number:04}")
        part.write_text("x")
        receiver.place(f"{number:04}", part, "digest", 0o644)
        now = {path: path.read_bytes() for path in tmp_path.rglob("returned.j*")}
        assert all(now[path].startswith(data) for path, data in old.items())
        if old:  # the first file begins the journal
            steps.add(sum(map(len, now.values())) - sum(map(len, old.values())))
    assert len(steps) == 1
    assert len(ReturnedFiles(tmp_path).files()) == 100


def test_sizes_are_for_people() -> None:
    sizes = [size_text(size) for size in (0, 1, 4, 1200, 3_000_000_000)]
    assert sizes == ["0 bytes", "1 byte", "4 bytes", "1.2 kB", "3.0 GB"]


def test_values_that_come_as_files_are_not_among_the_files(tmp_path: Path) -> None:
    values = results.folders("%output=** weights\n", tmp_path)
    files = ReturnedFiles(tmp_path, values=values)
    receiver = files.receiver(FIRST)
    for path in (".ciao-values/weights.npy", "weights.npy", ".ciao-values.csv"):
        part = receiver.part(path)
        part.write_text(path)
        receiver.place(path, part, hashlib.sha256(path.encode()).hexdigest(), 0o644)
    faults = {".ciao-values/more.json": "all files together are too large", "x": "it has vanished"}
    files.note(FIRST, Listing(missing=(".ciao-values/", "*.pt"), faults=faults))
    assert [one.at for one in files.files()] == [".ciao-values.csv", "weights.npy"]
    assert files.missing() == ("*.pt",)
    assert files.faults() == ("x (worker-0: it has vanished)",)
    value = LargeValues(results.folder(tmp_path, FIRST))
    found = value.find("weights.npy", hashlib.sha256(b".ciao-values/weights.npy").hexdigest()[:16])
    assert found is not None
    assert found.read_text() == ".ciao-values/weights.npy"
    assert value.fault("more.json") == "all files together are too large"


def test_a_job_without_values_may_have_a_folder_of_that_name(tmp_path: Path) -> None:
    assert results.folders("%output=** by:exec\n", tmp_path) is None
    put(tmp_path, FIRST, ".ciao-values/weights.npy", "mine")
    assert (tmp_path / ".ciao-values/weights.npy").read_text() == "mine"
