"""Words with shell quoting: how they are split and written, and which word is being typed."""

from __future__ import annotations

import pytest

from ciao_kernel.magics.shell_words import pairs, quote, quote_pairs, unfinished, words
from ciao_kernel.magics.value_types import CommandLine


@pytest.mark.parametrize("odd", ["\r", "\n", "\0"])
def test_a_word_is_one_line_of_text(odd: str) -> None:
    """A variable of the notebook may have any text."""
    with pytest.raises(ValueError, match=r"^one line of text$"):
        words(f"a 'b{odd}c'")
    assert words(f"a{odd}b" if odd != "\0" else "a b") == ("a", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1, ", ("A=1,",)),
        ("A=,'x' B=2", ("A=,x", "B=2")),
        ("A=1\\, B=2", ("A=1,", "B=2")),
    ],
)
def test_a_comma_that_parts_no_pairs_stays(text: str, expected: tuple[str, ...]) -> None:
    assert pairs(text) == expected


@pytest.mark.parametrize("value", ["1,", "x y,", "it's,", ",", ""])
def test_a_pair_with_a_comma_at_its_end_comes_back(value: str) -> None:
    assert pairs(quote_pairs([("A", value), ("B", "2")])) == (f"A={value}", "B=2")


@pytest.mark.parametrize("mark", ["'", '"', "\\"])
def test_a_plain_word_is_written_without_quotes(mark: str) -> None:
    assert quote("a/b-1.csv", mark) == "a/b-1.csv"
    assert quote("a b", mark) != "a b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a "b\\"c', (2, 'b"c', '"')),
        ('a "b\\\\', (2, "b\\", '"')),
        ("a 'b\\\\", (2, "b\\\\", "'")),
        ("'a'\"b", (0, "ab", "'")),
        ('"a b"/c', (0, "a b/c", '"')),
    ],
)
def test_the_word_that_is_being_typed_is_read_as_its_quotes_say(
    text: str, expected: tuple[int, str, str]
) -> None:
    found = unfinished(text)
    assert (found.start, found.typed, found.mark) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("awk -f {cell}", ("awk", "-f", "{cell}")),
        ("sh -c 'a b'", ("sh", "-c", "a b")),
        ("'a b' c", ("a b", "c")),
        ("c 'a\tb'", ("c", "a\tb")),
        # Quotes around the whole are one more than needed.
        ("'awk -f x'", ("awk", "-f", "x")),
        ("'awk\t-f'", ("awk", "-f")),
        ("'awk -f\tx'", ("awk", "-f", "x")),
        ("'C:\\run'", ("C:\\run",)),
        ("\"'/my programs/run'\"", ("/my programs/run",)),
        ("run", ("run",)),
    ],
)
def test_a_command_is_split_and_comes_back(text: str, expected: tuple[str, ...]) -> None:
    kind = CommandLine()
    assert kind.parse(text) == expected
    assert kind.parse(kind.render(expected)) == expected


def test_a_command_is_written_without_needless_quotes() -> None:
    assert CommandLine().render(("a b", "c")) == "'a b' c"
    assert CommandLine().render(("sh", "-c", "a b")) == "sh -c 'a b'"


@pytest.mark.parametrize("text", ["", " ", "''", "' '", "'' a"])
def test_a_command_without_a_program_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a program and its arguments, quoted as in a shell$"):
        CommandLine().parse(text)
