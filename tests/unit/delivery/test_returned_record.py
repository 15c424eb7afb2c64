"""The record of files that came back: one line for each file, shared by several kernels."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from ciao_kernel.delivery.output.returned_record import ReturnedRecord


def names(record: ReturnedRecord, replica: str = "worker-0") -> set[str]:
    record.read()
    return set(record.of(replica)["files"])


def add(record: ReturnedRecord, *paths: str) -> None:
    for path in paths:
        with record.adding():
            record.put_file("worker-0", path, {"at": path})


def test_the_next_fact_writes_all_of_it_once(tmp_path: Path) -> None:
    record, other = ReturnedRecord(tmp_path), ReturnedRecord(tmp_path)
    add(record, "a", "b")
    with record.changing():
        record.of("worker-0")["way"] = "exec"
    assert sorted(path.name for path in tmp_path.rglob("returned.j*")) == ["returned.json"]
    add(other, "c")
    add(record, "d")
    for one in (record, other, ReturnedRecord(tmp_path)):
        assert names(one) == {"a", "b", "c", "d"}
        assert one.of("worker-0")["way"] == "exec"


def test_lines_that_the_record_has_already_change_nothing(tmp_path: Path) -> None:
    """A kernel may be killed after it has written the record."""
    record = ReturnedRecord(tmp_path)
    add(record, "a")
    (journal,) = tmp_path.rglob("returned.journal")
    line = journal.read_bytes()
    with record.changing():
        pass
    journal.write_bytes(line)
    add(record, "b")
    assert names(ReturnedRecord(tmp_path)) == names(record) == {"a", "b"}


def test_half_a_line_of_a_killed_kernel_is_left_out(tmp_path: Path) -> None:
    record = ReturnedRecord(tmp_path)
    add(record, "a")
    (journal,) = tmp_path.rglob("returned.journal")
    with journal.open("ab") as file:
        file.write(b'["worker-0", "ha')
    again = ReturnedRecord(tmp_path)
    assert names(again) == {"a"}
    add(again, "b")
    assert names(record) == names(ReturnedRecord(tmp_path)) == {"a", "b"}


def test_a_folder_that_the_user_has_emptied_begins_anew(tmp_path: Path) -> None:
    record = ReturnedRecord(tmp_path)
    add(record, "a")
    for path in tmp_path.rglob("returned.*"):
        path.unlink()
    add(record, "b")
    assert names(record) == names(ReturnedRecord(tmp_path)) == {"b"}


@pytest.mark.parametrize("failed", ["adding", "changing"])
@pytest.mark.parametrize("later", ["adding", "changing"])
def test_a_change_that_failed_is_not_written_with_the_next_one(
    tmp_path: Path, failed: str, later: str
) -> None:
    record = ReturnedRecord(tmp_path)
    add(record, "b")
    with contextlib.suppress(OSError), getattr(record, failed)():
        record.put_file("worker-0", "a", {"at": "a"})
        raise OSError
    assert set(record.of("worker-0")["files"]) == {"b"}
    with getattr(record, later)():
        pass
    add(record, "c")
    assert names(record) == names(ReturnedRecord(tmp_path)) == {"b", "c"}


def test_a_reader_between_a_record_and_the_end_of_its_journal_misses_nothing(
    tmp_path: Path,
) -> None:
    """Readers take no lock, and the next journal may be longer before they look again."""
    record = ReturnedRecord(tmp_path)
    add(record, "a", "b")
    (journal,) = tmp_path.rglob("returned.journal")
    before = journal.read_bytes()
    with record.changing():
        pass
    journal.write_bytes(before)  # the record was written, and its journal is still there
    reader = ReturnedRecord(tmp_path)
    journal.unlink()
    add(record, "c", "d", "e")
    assert names(reader) == {"a", "b", "c", "d", "e"}
    with reader.changing():
        pass
    assert names(ReturnedRecord(tmp_path)) == {"a", "b", "c", "d", "e"}
