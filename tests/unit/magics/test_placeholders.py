"""Variables of the notebook in the values of directives."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import header, parse
from ciao_kernel.magics.placeholders import expand
from ciao_kernel.session.plugin_registry import Registry


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("not connected")


VARIABLES: dict[str, Any] = {
    "broken": Broken(),
    "lr": 0.01,
    "n": 3,
    "title": "a b",
    "opts": {"x": [1, 2]},
    "_x": 5,
}


def one(value: str) -> tuple[str | None, tuple[str, ...]]:
    (line,) = header.lines(f"%args={value}")
    found = expand(header.split(line, 0), VARIABLES)
    return found.tokens[0].value, found.notes


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("--lr {lr} --n $n", "--lr 0.01 --n 3"),
        ("{n + 1} {lr:.3f} {lr!r} {opts['x'][0]} {max(n, 2)}", "4 0.010 0.01 1 3"),
        ("{ n }", "3"),
        ("""{",".join(str(one) for one in opts["x"])}""", "1,2"),
        ("{[n * two for two in opts['x']]}", "[3, 6]"),
        ("'{title}'", "'a b'"),
        ("$_x-$n.5", "5-3.5"),
        ("{n}{n}", "33"),
        # An escape is needed only where a variable would be replaced.
        ("{{lr}} $$n", "{lr} $n"),
        ("{{other}} $$other", "{{other}} $$other"),
        # What others' cells contain stays.
        ("""'{"a": 5, "n": 1}'""", """'{"a": 5, "n": 1}'"""),
        ("""'{"a": {"b": 1}}'""", """'{"a": {"b": 1}}'"""),
        ("${HOME} $HOME $(POD_IP) %d {} {0} {1,2}", "${HOME} $HOME $(POD_IP) %d {} {0} {1,2}"),
        ("{print} {id(5)}", "{print} {id(5)}"),
        ("{lr", "{lr"),
        ("{{lr}", "{{lr}"),
        ("{n for n in range(3)", "{n for n in range(3)"),
        ("{name:n}", "{name:n}"),
        ("{nope + n}", "{nope + n}"),
    ],
)
def test_only_variables_of_the_notebook_are_replaced(written: str, value: str) -> None:
    assert one(written)[0] == value


def test_what_looks_like_a_variable_is_named() -> None:
    assert one("{nope} {nope} {print}")[1] == (
        "{nope} stays as written: the notebook has no such variable.",
        "{print} stays as written: the notebook has no such variable.",
    )
    value, notes = one("{1 / (n - 3)}")
    assert value == "{1 / (n - 3)}"
    assert notes == ("{1 / (n - 3)} stays as written: it fails with ZeroDivisionError.",)
    for written in ("{int(title)}", "$broken", "{broken}"):
        value, notes = one(written)
        assert value == written
        assert "a b" not in str(notes)  # it may be a password
        assert "stays as written: it fails with " in notes[0]
    assert one("""'{"a": 1}' {} {a b} ${{}} {{nope}}""")[1] == ()


def test_a_value_adds_no_directive() -> None:
    (line,) = header.lines("%args=$evil;%worker=2")
    found = expand(header.split(line, 0), {"evil": "x;%worker=9"})
    assert [(token.name, token.value) for token in found.tokens] == [
        ("args", "x;%worker=9"),
        ("worker", "2"),
    ]


def test_an_error_shows_the_line_as_written() -> None:
    table = Registry().table
    text = "%framework=tensorflow\n%worker={n}; %cpu=2\nprint(1)\n"
    assert parse.parse(text, table, variables={"n": 3}).spec.groups[0].count == 3
    with pytest.raises(DirectiveError) as caught:
        parse.parse(text, table, variables={"n": "some of them"})
    error = caught.value
    assert error.message.startswith("%worker cannot be the value of '{n}': expected ")
    assert "some of them" not in str(error)  # it may be a password
    assert (error.text, error.column, error.width) == ("%worker={n}; %cpu=2", 8, 3)
    with pytest.raises(DirectiveError, match=r"\{n\}"):
        parse.parse(text, table)
