"""What the live table says."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from datetime import datetime

from ciao_kernel.display.columns import columns
from ciao_kernel.display.table import Table, ending
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.times import clock_time
from tests.helpers.torchrun_report import report

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mnist", "local", "tensorflow", (ONE, TWO), 0.0, "/jobs/mnist/work")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def status(state: State, *replicas: ReplicaStatus, message: str = "") -> Status:
    return Status(state, replicas, message=message)


def test_before_anything_is_known() -> None:
    table = Table(JOB)
    assert table.title() == "mnist: Pending"
    first, second = table.rows()
    headings = ("replica", "state", "time", "lines/s", "log", "last line")
    assert table.headings() == headings
    assert first.cells(headings) == ("worker-0", "Pending", "–", "–", "", "")
    assert second.replica == "worker-1"
    assert not table.is_changing()


def test_states_are_shown_with_what_explains_them() -> None:
    table = Table(JOB)
    table.status = status(
        State.FAILED,
        ReplicaStatus(ONE, State.FAILED, time.time(), 1, log="/l/worker-0.log"),
        ReplicaStatus(TWO, State.STOPPED, 0.0, -15),
        message="it ran too long.",
    )
    assert table.title() == "mnist: Failed (it ran too long)"
    first, second = table.rows()
    assert first.detail == "Failed (exit code 1)"
    assert first.log == "/l/worker-0.log"
    assert first.moment in [f"Failed since {clock_time(time.time() - ago)}" for ago in range(60)]
    assert second.detail == "Stopped"


def test_a_job_that_may_not_start_yet_has_a_word_of_its_own() -> None:
    table = Table(JOB)
    table.status = Status(State.PENDING, (), reason="Queued", message="waits in queue team: full")
    assert table.title() == "mnist: Queued (waits in queue team: full)"
    table.status = replace(table.status, reason="Suspended", message="someone suspended it")
    assert table.title() == "mnist: Suspended (someone suspended it)"
    table.status = replace(table.status, state=State.FAILED)
    assert table.title() == "mnist: Failed (someone suspended it)"
    table.status = replace(table.status, state=State.PENDING, reason="a node's words")
    assert table.title() == "mnist: Pending (someone suspended it)"


def test_the_line_of_the_job_shows_how_far_its_training_is() -> None:
    clock = Clock()
    table = Table(replace(JOB, created=time.time()), clock=clock)
    table.status = status(State.RUNNING, ReplicaStatus(ONE, State.RUNNING))
    assert table.title() == "mnist: Running"
    for clock.now in map(float, range(31)):
        table.output(Output(ONE, b"step %d/120 loss 0.1\n" % clock.now, 1))
    assert table.title() == "mnist: Running  ━━━───────── 25 % (step 30/120), ≈ 1m 30s left"
    table.status = status(State.SUCCEEDED)
    assert table.title() == "mnist: Succeeded"


def test_a_run_in_warm_replicas_is_named() -> None:
    assert Table(replace(JOB, warm_run=3)).title() == "mnist, run 3, warm: Pending"


def test_nodes_and_restarts_are_columns_where_there_are_any() -> None:
    table = Table(JOB)
    table.status = status(
        State.RUNNING,
        ReplicaStatus(ONE, State.RUNNING, node="gpu-1"),
        ReplicaStatus(TWO, State.RUNNING, node="gpu-2", restarts=3),
    )
    heads, first, second = table.grid()
    assert heads[3:5] == ("node", "restarts")
    assert first[3:5] == ("gpu-1", "")
    assert second[3:5] == ("gpu-2", "3")


def test_a_replica_that_someone_added_is_shown() -> None:
    table = Table(JOB)
    third = Replica("worker", 2)
    table.status = status(State.RUNNING, *(ReplicaStatus(one) for one in (ONE, TWO, third)))
    table.output(Output(third, b"new\n", 1))
    assert [row.replica for row in table.rows()] == ["worker-0", "worker-1", "worker-2"]
    assert table.rows()[2].last_line == "new"


def test_of_a_thousand_replicas_the_failed_ones_are_shown_and_the_rest_is_counted() -> None:
    replicas = tuple(Replica("worker", number) for number in range(1000))
    table = Table(Job("big", "kubernetes", "tensorflow", replicas, 0.0))
    states = [ReplicaStatus(one, State.RUNNING) for one in replicas]
    states[700] = ReplicaStatus(replicas[700], State.FAILED)
    states[-2] = ReplicaStatus(replicas[-2])
    table.status = status(State.RUNNING, *states)
    states[500] = ReplicaStatus(replicas[500], State.RUNNING, restarts=1)
    table.status = status(State.RUNNING, *states)
    rows = table.rows()
    assert len(rows) == 41
    # What differs comes first: the failed one, then the first of a role, then others.
    names = [row.replica for row in rows[:5]]
    assert names == ["worker-700", "worker-0", "worker-500", "worker-998", "worker-1"]
    assert (rows[-1].replica, rows[-1].detail) == ("… 960 more", "960 Running")
    assert table.summary_lines() == [
        "1,000 replicas: 1 Failed, 1 Pending, 998 Running; 1 restarted"
    ]
    # More failed replicas than rows: the sum counts those that are not shown.
    states[:50] = [ReplicaStatus(one, State.FAILED) for one in replicas[:50]]
    table.status = status(State.RUNNING, *states)
    rows = table.rows()
    assert {row.state for row in rows[:-1]} == {State.FAILED}
    assert rows[-1].detail == "11 Failed, 1 Pending, 948 Running"
    (line,) = table.summary_lines()
    assert line.startswith("1,000 replicas: 51 Failed, 1 Pending, 948 Running")


def test_a_hundred_replicas_keep_their_order_below_a_sum_and_a_few_have_none() -> None:
    replicas = tuple(Replica("worker", number) for number in range(100))
    table = Table(Job("big", "kubernetes", "tensorflow", replicas, 0.0))
    states = [ReplicaStatus(one, State.RUNNING) for one in replicas]
    states[7] = ReplicaStatus(replicas[7], State.FAILED)
    table.status = status(State.RUNNING, *states)
    assert [row.who for row in table.rows()] == [*replicas]
    assert table.summary_lines() == ["100 replicas: 1 Failed, 99 Running"]
    few = Table(Job("few", "kubernetes", "tensorflow", replicas[:16], 0.0))
    assert few.summary_lines() == []


def test_endings() -> None:
    assert ending(ReplicaStatus(ONE, State.FAILED, 0, -9)) == "SIGKILL"
    assert ending(ReplicaStatus(ONE, State.SUCCEEDED, 0, 0)) == ""
    assert ending(ReplicaStatus(ONE)) == ""


def test_the_frame_of_torchruns_report_is_no_last_line() -> None:
    table = Table(JOB)
    table.output(Output(ONE, f"ValueError: bad\n{report(0)}".encode(), 24))
    assert table.rows()[0].last_line == "ValueError: bad"
    table.output(Output(ONE, report(0).encode(), 23))
    assert table.rows()[0].last_line == "ValueError: bad"


def test_a_line_that_only_separates_is_no_last_line() -> None:
    table = Table(JOB)
    table.output(Output(ONE, b"loss 0.5\n=====\n \n", 3))
    assert table.rows()[0].last_line == "loss 0.5"
    table.output(Output(ONE, b"=======\n", 1))  # as if a report came in two parts
    assert table.rows()[0].last_line == "loss 0.5"


def test_the_last_line_is_the_unfinished_one_if_there_is_one() -> None:
    table = Table(JOB)

    def last() -> str:
        return table.rows()[0].last_line

    table.output(Output(ONE, b"first\nsecond\n", 2))
    assert last() == "second"
    table.output(Output(ONE, b"", 0, b"\r10%\r\x1b[32m20%\x1b[0m"))
    assert last() == "20%"
    table.output(Output(ONE, b"\r100%\n\n\n", 3))
    assert last() == "100%"
    table.output(Output(ONE, b"x" * 10_000_000 + b"\n", 1))
    assert last() == "x" * 79 + "…"
    table.output(Output(ONE, b"\x1b[2J\xff<b>\x07\n", 1))
    assert last() == "\ufffd<b>"
    assert table.rows()[1].last_line == ""


def test_the_rate_follows_the_last_seconds() -> None:
    clock = Clock()
    table = Table(JOB, clock)
    for _ in range(100):
        clock.now += 0.1
        table.output(Output(ONE, b"x\n" * 50, 50))
    assert abs(float(table.rows()[0].rate.replace(",", "")) - 500) < 50
    assert table.is_changing()
    clock.now += 10
    assert table.rows()[0].rate == "–"
    assert not table.is_changing()


def test_a_replica_that_is_over_has_no_rate_and_moves_nothing() -> None:
    clock = Clock()
    table = Table(JOB, clock)
    table.output(Output(ONE, b"x\n" * 50, 50))
    table.status = status(State.RUNNING, ReplicaStatus(ONE, State.SUCCEEDED, 1.0, 0))
    assert table.rows()[0].rate == "–"
    clock.now += 10
    table.rows()
    assert not table.is_changing()


def test_memory_is_bounded_where_no_row_is_drawn() -> None:
    clock = Clock()
    table = Table(JOB, clock)
    tracemalloc.start()
    try:
        for _ in range(50_000):
            clock.now += 1
            table.output(Output(ONE, b"x\n", 1))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert table.rows()[0].rate == "1"


def test_a_row_that_is_not_drawn_moves_nothing() -> None:
    clock = Clock()
    replicas = tuple(Replica("worker", number) for number in range(150))
    table = Table(Job("big", "kubernetes", "tensorflow", replicas, 0.0), clock)
    for one in replicas:
        table.output(Output(one, b"x\n", 1))
    assert table.rows()[0].rate == "2"
    # The rates that are shown must be drawn once more, however late.
    clock.now += 3600
    assert table.is_changing()
    assert {row.rate for row in table.rows()[:-1]} == {"–"}
    assert not table.is_changing()
    table.output(Output(replicas[149], b"x\n", 1))
    table.rows()
    assert not table.is_changing()
    table.status = status(State.RUNNING, ReplicaStatus(replicas[149], State.FAILED))
    table.rows()
    assert table.is_changing()  # Its row is shown now.


def test_a_moment_has_its_date_for_who_reads_it_on_another_day() -> None:
    moment = datetime(2025, 11, 5, 14, 2, 11).timestamp()
    assert clock_time(moment) == "Nov 05 14:02:11"
    assert len(clock_time(time.time())) == len("Nov 05 14:02:11")
    assert clock_time(0.0) == "–"
    table = Table(JOB)
    table.status = status(State.FAILED, ReplicaStatus(ONE, State.FAILED, moment, 1))
    first, second = table.rows()
    assert first.moment == "Failed since Nov 05 14:02:11"
    assert second.moment == ""


def test_time_is_counted_from_the_jobs_submission() -> None:
    """Also where the job is attached to hours later: the table's own start is no part of it."""
    table = Table(replace(JOB, created=1000.0), now=lambda: 1080.0)
    assert [row.time for row in table.rows()] == ["1m 20s", "1m 20s"]
    table.status = status(
        State.RUNNING,
        ReplicaStatus(ONE, State.SUCCEEDED, 1012.0, 0),
        ReplicaStatus(TWO, State.RUNNING, 1070.0, restarts=1),
    )
    assert [row.time for row in table.rows()] == ["took 12s", "1m 20s"]
    assert table.elapsed() == 80.0
    ended = ReplicaStatus(TWO, State.STOPPED, 1079.0)
    table.status = status(State.SUCCEEDED, ReplicaStatus(ONE, State.SUCCEEDED, 1012.0, 0), ended)
    assert [row.time for row in table.rows()] == ["took 12s", "took 1m 19s"]
    assert table.elapsed() is None


def test_a_stop_after_success_is_expected_and_any_other_stop_is_not() -> None:
    table = Table(JOB)
    one = ReplicaStatus(ONE, State.SUCCEEDED, 1.0, 0)
    for state, expected in ((State.SUCCEEDED, True), (State.FAILED, False), (State.STOPPED, False)):
        table.status = status(state, one, ReplicaStatus(TWO, State.STOPPED, 2.0, -15))
        assert [row.expected for row in table.rows()] == [False, expected]


def test_columns_of_a_clusters_job_are_there_from_the_start() -> None:
    table = Table(replace(JOB, kind_of_place="namespace"))
    assert {"node", "restarts"} <= set(table.headings(fixed=True))
    assert not {"node", "restarts"} & set(table.headings())
    assert "node" not in Table(JOB).headings(fixed=True)


def test_columns() -> None:
    assert columns([("a", "bb"), ("ccc", "")]) == "a    bb\nccc"
