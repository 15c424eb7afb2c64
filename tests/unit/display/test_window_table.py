"""The table in the window of a terminal: names stay whole, and long texts give way."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ciao_kernel.display.table import Table
from ciao_kernel.display.window_table import drawing
from ciao_kernel.model import Job, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.usage import Usage, UsageReport

ONE, TWO = Replica("worker", 0), Replica("worker", 10)
NODE = "ip-10-0-12-34.eu-west-1.compute.internal"
REASON = "ImagePullBackOff: cannot pull registry.example.com/team/x:latest"
FAILED = ReplicaStatus(
    TWO, State.FAILED, 160.0, 137, "OOMKilled: more than 4Gi of memory", "", NODE
)
WIDTHS = [40, 72, 80, 100]


def table(*states: ReplicaStatus, usage: bool = False) -> Table:
    job = Job("pytorch-x", "kubernetes", "pytorch", (ONE, TWO), 100.0, "team", header="%gpu=1")
    made = Table(job, now=lambda: 3700.0, usage=usage)
    made.output(Output(ONE, b"step 1/10 loss 0.5 lr 0.1 throughput 1000 img/s\n", 1))
    running = ReplicaStatus(ONE, State.RUNNING, 110.0, node=NODE, restarts=1)
    made.status = Status(State.RUNNING, (running, *states))
    if usage:
        one = Usage(ONE, cpu=3.5, memory=30 << 30, peak=31 << 30, limit=64 << 30)
        made.note_usage(UsageReport((one,)))
    return made


def drawn(made: Table, width: int) -> list[str]:
    """Return the rows of the table, headings first."""
    console = Console(file=io.StringIO(), width=width)
    console.print(drawing(made, (), width, last=True))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return [line.rstrip() for line in lines[1:]]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "other",
    [
        ReplicaStatus(TWO, State.RUNNING, 110.0, node=NODE),
        ReplicaStatus(TWO, State.PENDING, reason=REASON),
        FAILED,
    ],
)
@pytest.mark.parametrize("usage", [False, True])
def test_names_and_states_are_never_cut(width: int, other: ReplicaStatus, usage: bool) -> None:
    heads, one, two = drawn(table(other, usage=usage), width)
    assert heads.startswith("replica    state  ")
    assert one.startswith("worker-0   Running  ")
    assert two.startswith(f"worker-10  {other.state}")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_long_state_leaves_room_for_the_last_line(width: int) -> None:
    heads, one, two = drawn(table(FAILED), width)
    assert "  last" in heads
    assert "  step" in one
    assert f"Failed (OOMKilled: m{'o…' if width < 72 else 'o'}" in two


@pytest.mark.parametrize("width", WIDTHS)
def test_the_last_line_of_a_replica_without_lines_is_the_reason(width: int) -> None:
    heads, _, two = drawn(table(ReplicaStatus(TWO, State.PENDING, reason=REASON)), width)
    place = heads.index("last")
    assert two[place:].startswith("Pend")
    assert two[place:].removesuffix("…") in f"Pending ({REASON})"


def test_columns_go_where_their_sum_does_not_fit() -> None:
    found = {width: drawn(table(FAILED), width)[0].split() for width in (*WIDTHS, 160)}
    assert found == {
        40: ["replica", "state", "last…"],
        72: ["replica", "state", "time", "last", "line"],
        80: ["replica", "state", "time", "node", "last", "line"],
        100: ["replica", "state", "time", "node", "restarts", "last", "line"],
        160: ["replica", "state", "time", "node", "restarts", "lines/s", "last", "line"],
    }


def test_the_last_table_gives_long_texts_what_its_last_lines_leave() -> None:
    made = table(FAILED)
    for replica in (ONE, TWO):
        made.output(Output(replica, b"done\n", 1))
    _, one, two = drawn(made, 150)
    assert one.endswith("done")
    assert "Failed (OOMKilled: more than 4Gi of memory, exit code 137)" in two


def test_a_wide_window_shows_more_of_long_texts() -> None:
    _, one, two = drawn(table(FAILED), 240)
    assert NODE in one
    assert "Failed (OOMKilled: more than 4Gi of memory, exit code 137)" in two
