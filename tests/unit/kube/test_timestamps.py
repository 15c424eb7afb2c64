"""Stamps of log lines: what is read of them, and what is said of the time between two."""

from __future__ import annotations

import pytest

from ciao_kernel.kube import timestamps


def at(clock: str, text: str = "") -> bytes:
    """A line of 14 November 2023, with its time of day."""
    return f"2023-11-14T{clock}Z {text}".encode()


NOON = at("12:00:00.000000000")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"2023-11-14T22:13:20.000000001Z a", b"2023-11-14T22:13:20.000000001Z a"),
        (b"2023-11-15T03:43:20.000000001+05:30 a b\r", b"2023-11-14T22:13:20.000000001Z a b\r"),
        (b"2023-11-14T14:13:20.120000000-08:00 ", b"2023-11-14T22:13:20.120000000Z "),
        (b"2023-11-14T22:13:20.000000001Z", b""),
        (b"2023-11-14T22:13:20Z a", b""),
        (b" 2023-11-14T22:13:20.000000001Z a", b""),
        (b"failed to open the log", b""),
    ],
)
def test_a_line_in_utc(line: bytes, found: bytes) -> None:
    assert timestamps.normal(line) == found
    assert timestamps.stamped(line) is bool(found)


def test_an_answer_without_the_kubelets_own_words() -> None:
    first, last = at("12:00:00.000000001", "one\r\n"), b"2023-11-14T12:00:00.000000001+02:00 two"
    answer = b"of a long line\n" + first + b"failed to open the log\n" + last
    assert timestamps.lines(answer, stamps=True) == first + last
    assert timestamps.lines(answer, stamps=False) == b"one\r\ntwo"


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2023-11-14T22:13:20Z", b"2023-11-14T22:13:20.000000000Z"),
        ("2023-11-14T22:13:20", b"2023-11-14T22:13:20.000000000Z"),
        ("2023-11-14T22:13:20.5Z", b"2023-11-14T22:13:20.500000000Z"),
        ("2023-11-14T22:13:20,5Z", b"2023-11-14T22:13:20.500000000Z"),
        ("2023-11-14T22:13:20.123456789Z", b"2023-11-14T22:13:20.123456789Z"),
        ("2023-11-14T22:13:20.1234567899Z", b"2023-11-14T22:13:20.123456789Z"),
        ("2023-11-15T00:13:20.25+02:00", b"2023-11-14T22:13:20.250000000Z"),
    ],
)
def test_a_time_of_a_user_as_a_stamp(text: str, stamp: bytes) -> None:
    assert timestamps.full(text) == stamp


def test_an_answer_begins_a_second_before_the_last_line() -> None:
    assert timestamps.second_before(at("12:00:00.999999999")) == "2023-11-14T11:59:59Z"
    assert timestamps.second_before(at("00:00:00.000000000")) == "2023-11-13T23:59:59Z"


@pytest.mark.parametrize(
    ("clocks", "high", "back"),
    [
        (["12:00:00.000000000", "12:00:00.000000000"], "", None),
        (["12:00:00.030000000", "12:00:00.010000000"], "", None),  # two streams, 20 ms
        (["12:00:00.030000000", "12:00:00.009999999"], "", 1),
        (["12:00:00.000000000", "11:59:59.980000000"], "", None),
        (["12:00:00.000000000", "11:59:59.979999999"], "", 1),
        # Many small steps are a large one.
        (["12:00:00.045000000", "12:00:00.030000000", "12:00:00.015000000"], "", 2),
        (["12:00:00.000000000"], "12:00:00.020000000", None),
        (["12:00:00.000000000"], "12:00:00.020000001", 0),
        (["12:00:01.000000000", "12:00:00.000000000", "12:00:02.000000000"], "", 1),
        (["11:00:00.500000000"], "12:00:00.000000000", 0),
    ],
)
def test_where_the_stamps_of_lines_step_back(
    clocks: list[str], high: str, back: int | None
) -> None:
    lines = [at(one, "text") for one in clocks]
    assert timestamps.step_back(lines, at(high)[:-1] if high else b"") == back


@pytest.mark.parametrize(
    ("clock", "words"),
    [
        ("12:00:00.040000000", "0.0 s"),
        ("12:00:01.940000000", "1.9 s"),
        ("12:01:59.900000000", "119.9 s"),
        ("12:02:00.000000000", "2 min"),
        ("13:30:31.000000000", "91 min"),
        ("11:59:00.000000000", "0.0 s"),  # a clock that was set back
    ],
)
def test_the_time_between_two_lines_in_a_sentence(clock: str, words: str) -> None:
    assert timestamps.span(NOON, at(clock)) == words
    assert timestamps.clock(at(clock)) == clock[:8]
