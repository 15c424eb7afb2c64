"""Lines of new starts in the logs of a local job: told once, and no line of the program is lost."""

from __future__ import annotations

from ciao_kernel.backends.local.try_lines import TryLines, without
from ciao_kernel.model import Notice, Output, Replica

TOLD = b"ciao: worker-1 was killed by SIGKILL; try 2 of 3\n"


def passed(lines: TryLines, index: int, data: bytes, tail: bytes = b"") -> list[object]:
    return list(lines.pass_on(Output(Replica("worker", index), data, data.count(b"\n"), tail)))


def test_each_log_has_the_line_and_the_cell_one_notice() -> None:
    lines = TryLines("mnist")
    first = passed(lines, 0, b"one\n" + TOLD + b"two\n", b"unfini")
    one, notice, two = first
    assert isinstance(one, Output)
    assert isinstance(two, Output)
    assert (one.data, two.data, two.tail) == (b"one\n", b"two\n", b"unfini")
    assert (one.lines, two.lines) == (1, 1)
    assert notice == Notice(
        "worker-1 was killed by SIGKILL; mnist is started again, try 2 of 3 (%retries=2)."
    )
    assert passed(lines, 1, TOLD) == []
    again = passed(lines, 1, TOLD.replace(b"try 2", b"try 3"))
    assert [type(each) for each in again] == [Notice]


def test_what_only_looks_like_it_is_output_of_the_program() -> None:
    lines = TryLines("mnist")
    for text in (
        TOLD[:-2] + b"9" * 5000 + b"\n",
        b"x " + TOLD,
        b"ciao: hello\n",
        TOLD.rstrip(b"\n"),
    ):
        (event,) = passed(lines, 0, text)
        assert isinstance(event, Output)
        assert event.data == text
        assert without(text) == text


def test_a_log_without_these_lines_is_what_is_followed() -> None:
    assert without(b"one\n" + TOLD + TOLD + b"two\n" + TOLD) == b"one\ntwo\n"
