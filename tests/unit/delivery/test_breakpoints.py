"""Markers of breakpoints in logs: taken out, so that the lines are what the program wrote."""

from __future__ import annotations

import itertools

import pytest

from ciao_kernel.delivery.inspection import breakpoints, debug_wire, process_state
from ciao_kernel.delivery.inspection.breakpoints import Breakpoint, MarkerFilter
from ciao_kernel.model import Replica

REST = b', "at": "line 7", "again": false, "asked": false, "over": false}'
MARK = debug_wire.MARKER.encode() + b'{"pid": 31' + REST + b"\n"
FOUND = [Breakpoint(31, "line 7")]


def test_a_marker_is_taken_out_with_its_line() -> None:
    assert MarkerFilter().read(b"a\n" + MARK + b"b\n") == (b"a\nb\n", b"", FOUND)


def test_a_marker_tells_the_error_of_a_failed_process() -> None:
    mark = MARK.replace(b"}", b', "failed": "ValueError: 3"}')

    assert MarkerFilter().read(mark)[2] == [Breakpoint(31, "line 7", failed="ValueError: 3")]
    assert MarkerFilter().read(mark.replace(b'"ValueError: 3"', b"3"))[2] == []


@pytest.mark.parametrize(
    ("said", "name"),
    [(b'"1"', "worker-0.1"), (b'""', "worker-0"), (b'"x"', "worker-0"), (b'"12345"', "worker-0")],
)
def test_a_marker_names_the_process(said: bytes, name: str) -> None:
    mark = MARK.replace(b"}", b', "rank": ' + said + b"}")

    assert MarkerFilter().read(mark)[2][0].name(Replica("worker", 0)) == name


def test_an_open_line_goes_on_behind_the_marker() -> None:
    marks = MarkerFilter()

    assert marks.read(b"a\n45 % " + MARK) == (b"a\n", b"45 % ", FOUND)
    assert marks.read(b"", b"46") == (b"", b"45 % 46", [])
    assert marks.read(b"46 %\nb\n") == (b"45 % 46 %\nb\n", b"", [])


def test_an_open_line_at_the_end_is_kept() -> None:
    marks = MarkerFilter()
    marks.read(b"45 % " + MARK)

    assert marks.rest() == b"45 % "
    assert marks.rest() == b""


def test_the_number_of_a_process_of_torchrun_goes_too() -> None:
    assert MarkerFilter().read(b"[0] a\n[1] " + MARK + b"[1] b\n")[0] == b"[0] a\n[1] b\n"
    assert breakpoints.without(b"[0] a\n[1] " + MARK) == b"[0] a\n"


def test_a_part_of_a_marker_is_not_shown_as_the_last_line() -> None:
    assert MarkerFilter().read(b"", b"45 % " + MARK[:12]) == (b"", b"45 % ", [])


PIDS = [b"1e999", b"NaN", b"-1", b"0", b"true", b"2147483648", b"1" * 5000]


@pytest.mark.parametrize("text", [b"{}", b"{", *(b'{"pid": ' + one + REST for one in PIDS)])
def test_what_a_program_writes_like_a_marker_says_nothing(text: bytes) -> None:
    line = debug_wire.MARKER.encode() + text + b"\n"

    assert MarkerFilter().read(b"a\n" + line) == (b"a\n", b"", [])


def test_other_lines_are_the_same_object() -> None:
    data = b"a\n\x1eciao:other\n"

    assert MarkerFilter().read(data)[0] is data
    assert breakpoints.without(data) is data


def test_a_marker_with_its_time_is_taken_out() -> None:
    time = b"2026-01-31T18:00:00.123456789Z "

    assert breakpoints.without(time + b"a\n" + time + MARK + time + b"b\n") == (
        time + b"a\n" + time + b"b\n"
    )


def test_a_replica_and_its_readers_know_the_same_variables_of_ranks() -> None:
    assert debug_wire._RANKS == process_state.LOCAL_RANKS


OPEN_MPI = "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE="


@pytest.mark.parametrize(
    ("given", "rank"),
    [
        ("", ""),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", ""),
        ("LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", "0"),
        (f"LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 {OPEN_MPI}2", ""),  # mpirun counts those of the machine
        (f"LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 {OPEN_MPI}4", "0"),
        (f"{OPEN_MPI}2", "1"),  # in a pod
        ("OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1", ""),
        ("MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "1"),
        ("LOCAL_RANK=0", ""),  # %framework=python
        ("OMPI_COMM_WORLD_LOCAL_RANK=0", ""),  # %framework=jax
        ("LOCAL_RANK=1", "1"),  # a launcher that tells no count
        ("LOCAL_RANK=x LOCAL_WORLD_SIZE=2", ""),
    ],
)
def test_a_process_has_the_number_that_its_launcher_gives_it(
    given: str, rank: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = dict(word.split("=") for word in given.split())
    for name in itertools.chain(*process_state.LOCAL_RANKS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (process_state.rank_of(variables), debug_wire.rank()) == (rank, rank)
