"""From bytes to the lines that a cell shows: prefixes, colours, and the limits."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ciao_kernel.display.line_batches import Batcher
from ciao_kernel.display.lines import Prefixer, clean, plain, wire_size
from ciao_kernel.model import Output, Replica
from tests.helpers.colors import COLOR, uncolored
from tests.helpers.growth import is_linear

ONE, TWO, PS = Replica("worker", 0), Replica("worker", 1), Replica("ps", 0)


# ---------------------------------------------------------------------------------- clean


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("text", "text"),
        ("dos\r", "dos"),
        ("\t tab", "\t tab"),
        ("10%\r50%\r100%", "100%"),
        ("10%\r100%\r", "100%"),
        ("10%\r100%\r\r", "100%"),
        ("100%\r\x1b[K", "100%"),
        ("\r\x1b[2K50%\r\x1b[2K\x1b[32m51%\x1b[0m", "\x1b[32m51%\x1b[0m"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[38;5;196mx\x1b[38:2::1:2:3my", "\x1b[38;5;196mx\x1b[38:2::1:2:3my"),
        ("\x1b[2J\x1b[H\x1b[?25lx\x1b[10;20Hy", "xy"),
        ("\x1b]0;title\x07x\x1b]8;;http://e\x1b\\link\x1b]8;;\x1b\\", "xlink"),
        ("\x1bP1$r\x1b\\a\x1b_x\x1b\\b\x1b(Bc\x1b7d\x1bce", "abcde"),
        ("\x1b[>4;2mx\x1b[?1my", "xy"),
        ("\x1b]0;never ends", "0;never ends"),
        ("a\x1b", "a"),
        ("a\x1b[31", "a[31"),
        ("\x9b31mx\x85y\x1cz", "31mxyz"),
        ("a\x00\x07\x08b", "ab"),
        ("漢字 🙂 ü", "漢字 🙂 ü"),
    ],
)
def test_a_line_as_a_terminal_leaves_it(line: str, seen: str) -> None:
    assert clean(line) == seen
    assert plain(line) == uncolored(seen)


@given(st.text(st.sampled_from("\x1b[]()?;:0123mKHab\r\t\x07\\\x00\x9bPX^_ >"), max_size=60))
def test_nothing_but_colours_is_left_of_any_line(line: str) -> None:
    seen = clean(line)
    assert "\x1b" not in uncolored(seen)
    assert not any(ord(c) < 32 and c != "\t" for c in seen.replace("\x1b", ""))
    assert clean(seen) == seen
    assert "\x1b" not in plain(line)


@pytest.mark.parametrize("unit", ["\x1b]", "\x1b[", "\r", "\x1b[3", "a\r ", "\x1b]0;x", "\x1b( "])
def test_the_work_grows_as_a_hostile_line_does(unit: str) -> None:
    assert is_linear(lambda size: clean(unit * (size // len(unit))), 1_000_000)


# ------------------------------------------------------------------------------- prefixes


def test_every_line_stands_behind_its_replica() -> None:
    prefixer = Prefixer(color=False, limit=100)
    assert prefixer.format(ONE, b"a\n\nb\n") == "[worker-0] a\n[worker-0] \n[worker-0] b\n"
    assert prefixer.format(PS, b"no end") == "[ps-0] no end\n"
    assert prefixer.format(PS, b"\n") == "[ps-0] \n"
    assert prefixer.format(PS, b"\xff\xfe\r\n") == "[ps-0] \ufffd\ufffd\n"


@given(
    st.lists(st.text(st.sampled_from("ab ü漢\t\r\x1b[31m\x00\u2028\x85"), max_size=12), max_size=6),
    st.booleans(),
    st.sampled_from([4, 100]),
)
def test_many_lines_are_shown_as_each_of_them(lines: list[str], color: bool, limit: int) -> None:
    """Lines without anything special are formatted together."""
    prefixer = Prefixer(color=color, limit=limit)
    prefix = prefixer.prefix(ONE)
    expected = "".join(f"{prefix}{prefixer._line(line)}\n" for line in lines or [""])
    assert prefixer.format(ONE, "\n".join([*lines, ""]).encode()) == expected


def test_replicas_have_colours_of_their_own() -> None:
    prefixer = Prefixer(color=True, limit=100)
    seen = {prefixer.prefix(Replica("worker", index)) for index in range(8)}
    assert len({COLOR.search(text)[0] for text in seen}) == 8  # type: ignore[index]
    assert prefixer.prefix(ONE) == Prefixer(color=True, limit=5).prefix(ONE)
    assert prefixer.format(ONE, b"x\n").endswith("\x1b[0mx\n")


def test_a_colour_that_a_line_leaves_on_ends_with_it() -> None:
    assert (
        Prefixer(color=True, limit=100)
        .format(ONE, b"\x1b[31mred\nnext\n")
        .endswith("\x1b[31mred\x1b[0m\n" + Prefixer(color=True, limit=1).prefix(ONE) + "next\n")
    )
    assert Prefixer(color=False, limit=100).format(ONE, b"\x1b[31mred\n") == "[worker-0] red\n"


def test_a_long_line_is_cut_and_says_so() -> None:
    text = Prefixer(color=True, limit=100).format(ONE, b"\x1b[31m" + b"x" * 999_995 + b"\n")
    assert len(text) < 250
    assert "(1,000,000 characters; all of them are in the log file)" in text
    # Never in the middle of a colour.
    for limit in range(1, 12):
        text = Prefixer(color=True, limit=limit).format(ONE, b"ab\x1b[31mcdef\x1b[0mgh\n")
        assert "\x1b" not in uncolored(text)


# -------------------------------------------------------------------------------- batches


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def batcher(clock: Clock, rate: float = 10_000, total: float = 1e9, limit: int = 1000) -> Batcher:
    prefixer = Prefixer(color=False, limit=limit)
    return Batcher(prefixer, rate=rate, total=total, clock=clock)


def output(replica: Replica, *lines: str) -> Output:
    data = "".join(f"{line}\n" for line in lines).encode()
    return Output(replica, data, len(lines))


def wire(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


@given(st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from('\t\n\r\b\f\x1b\x7f"\\'))))
def test_the_size_of_a_text_counts_all_that_json_escapes(text: str) -> None:
    assert wire_size(text) == wire(text)


@pytest.mark.parametrize("code", range(0x100))
def test_the_size_of_each_character_is_known(code: int) -> None:
    assert wire_size(chr(code)) == wire(chr(code))


def shown(text: str) -> int:
    return sum(line.startswith("[") for line in text.splitlines())


def left_out(made: Batcher) -> int:
    return sum(count.left_out for count in made.counts.values())


def test_what_fits_is_shown_as_it_came() -> None:
    made = batcher(Clock())
    made.add(output(ONE, "a", "b"))
    made.add(output(PS, "c"))
    made.add(Output(ONE, b"", 0, b"tail"))
    assert made.take() == "[worker-0] a\n[worker-0] b\n[ps-0] c\n"
    assert made.take() == ""
    assert not made
    assert left_out(made) == 0
    assert (made.counts[ONE].lines, made.counts[PS].lines) == (2, 1)


def test_a_flood_is_cut_to_its_end_and_counted() -> None:
    made = batcher(Clock())
    made.add(output(ONE, *(f"line {n}" for n in range(10_000))))
    text = made.take()
    assert wire(text) < 5_500
    first, *rest = text.splitlines()
    assert re.fullmatch(r"… [\d,]+ lines of worker-0 are not shown here …", first)
    assert rest[-1] == "[worker-0] line 9999"
    assert rest == [f"[worker-0] line {n}" for n in range(10_000 - len(rest), 10_000)]
    assert made.counts[ONE].left_out == 10_000 - len(rest)


def test_the_rate_holds_over_any_three_seconds() -> None:
    clock = Clock()
    made = batcher(clock, rate=100_000)
    sizes = []
    for tick in range(100):
        clock.now += 0.1
        made.add(output(ONE, *(f'"{tick}" \x1b[31mü{n}' for n in range(3000))))
        sizes.append(wire(made.take()))
    for start in range(70):
        assert sum(sizes[start : start + 30]) < 100_000 * 3 * 1.25  # Jupyter Server's limit
    assert sum(sizes) > 0.7 * 100_000 * 10


def test_a_quiet_replica_is_not_drowned() -> None:
    clock = Clock()
    made = batcher(clock)
    for tick in range(50):
        clock.now += 0.1
        made.add(output(ONE, *("flood" for _ in range(2000))))
        made.add(output(TWO, *("flood" for _ in range(2000))))
        made.add(output(PS, f"quiet {tick}"))
        assert f"[ps-0] quiet {tick}\n" in made.take()
    assert made.counts[PS].left_out == 0
    one, two = made.counts[ONE], made.counts[TWO]
    assert abs(one.left_out - two.left_out) < 0.1 * one.lines


def test_the_total_ends_it_with_one_word() -> None:
    clock = Clock()
    made = batcher(clock, rate=1e9, total=5_000)
    text = ""
    for _ in range(100):
        clock.now += 0.1
        made.add(output(ONE, *("x" * 40 for _ in range(10))))
        made.add(output(TWO, "y"))
        text += made.take()
    assert wire(text) < 6_000
    assert text.count("output limit reached") == 1
    assert shown(text) + left_out(made) == 1100


def test_a_table_that_took_the_credit_only_delays() -> None:
    clock = Clock()
    made = batcher(clock)
    made.charge(1_000_000)
    made.add(output(ONE, "wait"))
    assert made.take() == ""
    assert made
    clock.now += 1.0
    assert made.take() == "[worker-0] wait\n"
    made.charge(1_000_000)
    made.add(output(ONE, "the end"))
    assert made.take(last=True) == "[worker-0] the end\n"


@pytest.mark.parametrize("line", ["x" * 90, "\t" * 90, "ü\t" * 30])
@pytest.mark.parametrize("before", [0.0, 1.0, 5.0])
def test_the_end_of_a_job_gets_what_the_server_passes_on(line: str, before: float) -> None:
    clock = Clock()
    made = batcher(clock, rate=80_000)
    sizes: list[tuple[float, int]] = []

    def sent(text: str) -> int:
        sizes.append((clock.now, wire(text)))
        return wire(text)

    while clock.now < 100.0 + before:
        made.add(output(ONE, *(line for _ in range(1000))))
        sent(made.take())
        clock.now += 0.1
    for replica in (ONE, TWO):
        for _ in range(20):
            made.add(output(replica, *(line for _ in range(100))), last=True)
    last = sent(made.take(last=True))
    assert last > 4_000 if before else last > 220_000
    for _ in range(50):  # another replica has not ended yet
        clock.now += 0.1
        made.add(output(PS, *(line for _ in range(1000))))
        sent(made.take())
    for start, _ in sizes:
        within = sum(size for at, size in sizes if start <= at <= start + 3.0)
        assert within < 80_000 / 0.8 * 3
    assert last < 80_000 * 3  # also where the rate is all that the server passes on


def test_a_picture_that_took_the_credit_leaves_no_line_out() -> None:
    clock = Clock()
    made = batcher(clock, rate=6_500)
    made.charge(1_000_000)
    text = ""
    for number in range(100):
        made.add(output(ONE, f"step {number} loss 0.25"))
        clock.now += 0.02
        text += made.take()
    clock.now += 1.0
    text += made.take()
    assert shown(text) == 100
    assert left_out(made) == 0


def test_what_waits_is_bounded_and_the_rest_counts_as_left_out() -> None:
    clock = Clock()
    made = batcher(clock, rate=5_000)
    text, lines = "", 10_000
    for number in range(lines):
        made.add(output(TWO, "quiet") if number == 0 else output(ONE, f"line {number}"))
        clock.now += 0.125
        made.charge(1_000)  # more than the rate
        text += made.take()
        assert sum(len(one.data) for one in made._pending) < 5_000
    clock.now += 1.0
    text += made.take()
    assert f"[worker-0] line {lines - 1}\n" in text
    assert "[worker-1] quiet\n" in text
    assert shown(text) + left_out(made) == lines
    said = re.findall(r"^… ([\d,]+) lines of worker-0 are", text, re.M)
    assert sum(int(number.replace(",", "")) for number in said) == left_out(made)


def test_all_that_waits_may_be_left_out_and_is_told() -> None:
    made = batcher(Clock(), rate=100)
    made.add(output(ONE, *("x" * 200 for _ in range(10))))
    assert made.take() == "… 10 lines of worker-0 are not shown here …\n"
    assert made.take() == ""


def test_long_lines_cost_what_is_shown_of_them() -> None:
    made = batcher(Clock(), rate=20_000, limit=100)
    made.add(output(ONE, *("z" * 100_000 for _ in range(10))))
    assert shown(made.take()) == 10
    assert left_out(made) == 0


def test_a_last_line_without_end_counts() -> None:
    made = batcher(Clock(), rate=1000)
    made.add(output(ONE, *("x" * 50 for _ in range(100))))
    made.add(Output(ONE, b"the end", 1))
    text = made.take()
    assert text.endswith("[worker-0] the end\n")
    assert shown(text) + left_out(made) == 101


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ONE, TWO, PS]),
            st.lists(st.text(st.sampled_from("ab ü\r\x1b"), max_size=120), max_size=30),
            st.booleans(),
            st.floats(0, 0.5),
        ),
        max_size=30,
    ),
    st.floats(1_000, 50_000),
    st.floats(1_000, 20_000),
)
def test_shown_and_left_out_make_all(steps: list, rate: float, total: float) -> None:  # type: ignore[type-arg]
    clock = Clock()
    made = batcher(clock, rate=rate, total=total, limit=80)
    text, lines = "", 0
    for replica, several, take, pause in steps:
        made.add(output(replica, *several))
        lines += len(several)
        clock.now += pause
        text += made.take() if take else ""
    text += made.take(last=True)
    assert sum(count.lines for count in made.counts.values()) == lines
    assert text.count("\n[") + text.startswith("[") + left_out(made) == lines
