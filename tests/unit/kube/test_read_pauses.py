"""Lines after a quiet moment are read at once; a busy log is read from time to time."""

from __future__ import annotations

from ciao_kernel.kube.read_pauses import ReadPauses

PAUSE = 0.05
LINE = 60


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reads(every: float, seconds: float) -> list[float]:
    """Return the pauses after the reads of a log with a line each so many seconds."""
    clock = Clock()
    pauses = ReadPauses(PAUSE, clock)
    end, line, found = clock.now + seconds, clock.now, list[float]()
    while clock.now < end:
        line = max(line + every, clock.now)
        clock.now = line
        found.append(pauses.after(LINE))
        clock.now += found[-1]
    return found


def test_a_quiet_log_is_read_at_once() -> None:
    assert set(reads(every=1.0, seconds=60)) == {0.0}
    assert set(reads(every=0.051, seconds=60)) == {0.0}


def test_a_busy_log_is_read_once_in_each_pause() -> None:
    found = reads(every=0.001, seconds=10)
    assert found[:4] == [0.0] * 4
    assert 180 <= len(found) <= 220
    assert sum(found) > 9


def test_a_busy_log_that_becomes_quiet_is_read_at_once_again() -> None:
    clock = Clock()
    pauses = ReadPauses(PAUSE, clock)
    for _ in range(20):
        clock.now += pauses.after(LINE)
    assert pauses.after(LINE) == PAUSE
    clock.now += 1
    assert [pauses.after(LINE) for _ in range(5)] == [0.0] * 4 + [PAUSE]


def test_nothing_waits_while_more_data_is_there_or_without_pauses() -> None:
    clock = Clock()
    busy = ReadPauses(PAUSE, clock)
    assert {busy.after(1 << 16) for _ in range(20)} == {0.0}
    assert {ReadPauses(0.0, clock).after(LINE) for _ in range(20)} == {0.0}
