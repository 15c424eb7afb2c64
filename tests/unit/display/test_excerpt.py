"""First and last lines of each replica: what is shown, what is held, what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ciao_kernel.display import excerpt
from ciao_kernel.display.excerpt import Excerpt, left_out_text
from ciao_kernel.model import ALL_LINES, Job, Output, Replica, ReplicaStatus, State, Status

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mnist", "local", "tensorflow", (ONE, TWO), 0.0, "/jobs/mnist/work")


def output(replica: Replica, *lines: str) -> Output:
    return Output(replica, "".join(f"{line}\n" for line in lines).encode(), len(lines))


def lines(*events: Output | None) -> list[str]:
    return b"".join(event.data for event in events if event).decode().splitlines()


def test_a_short_log_is_shown_whole() -> None:
    made = Excerpt(3, 1)
    event = output(ONE, "a", "b", "c")
    assert made.add(event) is event
    assert not made
    assert made.close() == ({}, [])


def test_the_first_lines_are_shown_and_the_newest_are_held() -> None:
    made = Excerpt(2, 2)
    assert lines(made.add(output(ONE, "a", "b", "c"))) == ["a", "b"]
    assert made.add(output(ONE, "d")) is None
    assert lines(made.add(output(TWO, "other"))) == ["other"]  # has first lines of its own
    assert made.add(output(ONE, "e", "f", "g")) is None
    assert bool(made)
    assert lines(*made.newest())[-2:] == ["f", "g"]
    left_out, newest = made.close()
    assert left_out == {ONE: 3}
    assert lines(*newest) == ["f", "g"]
    assert [event.lines for event in newest] == [2]
    assert lines(made.add(output(ONE, "again"))) == ["again"]  # it starts anew


def test_held_lines_of_several_replicas_keep_their_order() -> None:
    made = Excerpt(1, 2)
    for number in range(3):
        made.add(output(ONE, f"one {number}"))
        made.add(output(TWO, f"two {number}"))
    left_out, newest = made.close()
    assert left_out == {ONE: 1, TWO: 1}
    assert lines(*newest) == ["one 2", "two 2"]


def test_an_unfinished_line_and_lines_without_text_pass() -> None:
    made = Excerpt(1, 1)
    open_line = Output(ONE, b"", 0, tail=b"10%")
    assert made.add(open_line) is open_line
    unread = Output(ONE, b"", 7)
    assert made.add(unread) is unread


@settings(deadline=None)
@given(st.integers(1, 6), st.lists(st.tuples(st.sampled_from((ONE, TWO)), st.integers(1, 9))))
def test_every_line_is_shown_or_counted(most: int, events: list[tuple[Replica, int]]) -> None:
    made = Excerpt(most, 2)
    written: dict[Replica, list[str]] = {ONE: [], TWO: []}
    shown: dict[Replica, list[str]] = {ONE: [], TWO: []}
    for replica, count in events:
        new = [f"{len(written[replica]) + n}" for n in range(count)]
        written[replica] += new
        shown[replica] += lines(made.add(output(replica, *new)))
    left_out, newest = made.close()
    for replica, all_lines in written.items():
        last = lines(*(event for event in newest if event.replica == replica))
        missing = left_out.get(replica, 0)
        assert shown[replica] == all_lines[:most]
        assert last == (all_lines[most:][-most:] if len(all_lines) > most else [])
        assert len(shown[replica]) + missing + len(last) == len(all_lines)


def test_long_lines_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excerpt, "_HELD", 1000)
    made = Excerpt(100, 1)
    made.add(output(ONE, *"x" * 100))
    for _ in range(50):
        made.add(output(ONE, "y" * 200))
    left_out, newest = made.close()
    assert sum(len(event.data) for event in newest) <= 1000
    assert left_out[ONE] + len(newest) == 50


def test_the_line_in_place_of_others_names_the_way_to_them() -> None:
    logs = tuple(ReplicaStatus(one, log=f"/l/{one}.log") for one in (ONE, TWO))
    status = Status(State.RUNNING, logs)
    assert left_out_text(JOB, status, {}) == ""
    assert left_out_text(JOB, None, {ONE: 1}) == (
        "… 1 line of worker-0 is left out here: `%ciao logs mnist --replica worker-0` shows it …"
    )
    assert left_out_text(JOB, status, {ONE: 2600}) == (
        "… 2,600 lines of worker-0 are left out here: `%ciao logs mnist --replica worker-0` shows "
        "them; all are in /l/worker-0.log …"
    )
    assert left_out_text(JOB, status, {ONE: 2, TWO: 3}) == (
        "… 5 lines of worker-0, worker-1 are left out here: `%ciao logs mnist` shows them; all are "
        "in /l …"
    )
    away = replace(JOB, options="--namespace team-b")
    many = {Replica("worker", number): 1000 for number in range(8)}
    assert left_out_text(away, None, many) == (
        "… 8,000 lines of 8 replicas are left out here: `%ciao logs mnist --namespace team-b` "
        "shows them …"
    )


def test_no_way_is_named_to_lines_whose_log_files_are_removed() -> None:
    gone = replace(JOB, logs_kept=False)
    status = Status(State.RUNNING, (ReplicaStatus(ONE, log="/l/worker-0.log"),))
    assert left_out_text(gone, status, {ONE: 1}) == (
        "… 1 line of worker-0 is left out here, and %cleanPolicy=all removes the log files: the "
        "next run keeps all lines with %lines=all …"
    )
    assert "… 5 lines of worker-0, worker-1 are left" in left_out_text(gone, None, {ONE: 2, TWO: 3})


def test_all_lines_means_all() -> None:
    made = Excerpt(ALL_LINES, 1)
    event = output(ONE, *map(str, range(10_000)))
    assert made.add(event) is event
    assert not made
