"""Variables of the notebook in the values of directives."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import header, parse
from ciao_kernel.magics.placeholders import expand, has_variable
from ciao_kernel.session.plugin_registry import Registry


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("not connected")


class Config:
    lr = 0.5
    inner = SimpleNamespace(n=7)

    @property
    def failing(self) -> float:
        raise RuntimeError("not connected")


VARIABLES: dict[str, Any] = {
    "broken": Broken(),
    "lr": 0.01,
    "n": 3,
    "title": "a b",
    "config": Config(),
    "folder": Path("/data/digits"),
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
        # An attribute is one of the object, or else text.
        ("$config.lr $config.inner.n. {config.lr}", "0.5 7. 0.5"),
        ("$title.txt $config.inner.n.txt $n.5 $other.lr", "a b.txt 7.txt 3.5 $other.lr"),
        ("$title.index $folder.parent", "a b.index /data"),  # a method is never meant
        ("$folder.nope.name", "/data/digits.nope.name"),  # behind a text there is no attribute
        ("$$config.lr $$n.5", "$config.lr $n.5"),
        # A shell's variables are between single quotes, as in the line of any magic.
        ("sh -c 'echo $n ${no} $$n' $n", "sh -c 'echo $n ${no} $$n' 3"),
        ("""\\'$n\\' "it's $n" "\\"'$n'" '$n""", """\\'3\\' "it's 3" "\\"'3'" '3"""),
        ("""'{n} $n'"$n"'$n'$n""", """'3 $n'"3"'$n'3"""),
        ("""'' $n '' "" '$n' "" $n""", """'' 3 '' "" '$n' "" 3"""),
        # Braces behind $ are a shell's, in quotes or not.
        ("${n} x${n}{n} {n}${n}", "${n} x${n}3 3${n}"),
        ("bash -c 'n=1; echo ${n}' {n}", "bash -c 'n=1; echo ${n}' 3"),
        ('"${n}" ${n:-3} ${n%.txt} ${n[0]} ${n:-$lr}',) * 2,
        ("$${n} \\${n} '$${n}'",) * 2,
        ("'$'{n} ${{n}} $n{n}", "'$'3 ${n} 33"),
        # A list in braces is a shell's too; a tuple has its parentheses.
        ("data/{n,lr}.csv {n,} {n,nope} {*.a,b}",) * 2,
        ("{n.real,lr} {lr,n.real} {n*2,lr} {lr,n*2}",) * 2,
        ("'{n, lr}' {max(n, 2), lr}", "'(3, 0.01)' (3, 0.01)"),
        ("{n,lr!r}", "(3, 0.01)"),
        (
            "{(n, lr)} {n, lr!r} {{n,lr}} {opts['x'][0], n!s:>8}",
            "(3, 0.01) (3, 0.01) {n,lr}   (1, 3)",
        ),
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


def test_a_name_is_evaluated_only_when_it_is_replaced() -> None:
    def tokens(value: str) -> tuple[header.Token, ...]:
        (line,) = header.lines(f"%command={value}")
        return tuple(header.split(line, 0))

    asked: list[str] = []
    variables = {**VARIABLES, "ask": asked.append}
    for value in ("{n}", "x$n", "{ask(n)}", "$config.lr", "{{n}}", "$$n"):
        assert has_variable(*tokens(value), variables)
    for value in ("{cell}", "{nope}", "'$n'", "${n}", "n", '{"n": 1}', "$nope {n + nope}", ""):
        assert not has_variable(*tokens(value), variables)
        assert expand(tokens(value), variables).tokens == tokens(value)
    assert asked == []
    assert expand(tokens("{n}"), None) == (tokens("{n}"), ())


def test_an_attribute_that_fails_is_named() -> None:
    assert one("$config.failing") == (
        "$config.failing",
        ("$config.failing stays as written: it fails with RuntimeError.",),
    )


@pytest.mark.parametrize("name", ["{framework}", "$framework", "'{framework}'"])
def test_the_framework_may_be_a_variable(name: str) -> None:
    text = f"%framework={name}\n%command=awk -f {{cell}}\nBEGIN {{ print 1 }}\n"
    table = Registry({}).table
    found = parse.parse(text, table, variables={"framework": "custom", "n": 1})
    assert (found.spec.framework, found.code) == ("custom", "\n\nBEGIN { print 1 }\n")
    text = f"%framework={name}\nx = 1\n%worker={{n}}\n"
    found = parse.parse(text, table, variables={"framework": "python", "n": 2})
    assert found.spec.count("worker") == 2


def test_a_note_is_made_once() -> None:
    text = "%framework=python\n%args={nope}\nx = 1\n%args={nope}\n"
    assert len(parse.parse(text, Registry({}).table, variables={"n": 1}).notes) == 1


def test_what_looks_like_a_variable_is_named() -> None:
    assert one("{nope} {nope} {print}")[1] == (
        "{nope} stays as written: the notebook has no such variable.",
        "{print} stays as written: the notebook has no such variable.",
    )
    value, notes = one("{1 / (n - 3)}")
    assert value == "{1 / (n - 3)}"
    assert notes == ("{1 / (n - 3)} stays as written: it fails with ZeroDivisionError.",)
    for written in ("{int(title)}", "$broken", "{broken}", "{n,lr:>8}"):
        value, notes = one(written)
        assert value == written
        assert "a b" not in str(notes)  # it may be a password
        assert "stays as written: it fails with " in notes[0]
    assert (
        one("""'{"a": 1}' {} {a b} ${{}} {{nope}} ${HOME} ${n} ${n:-3} $${nope} {n,lr}""")[1] == ()
    )
    assert one("{nope + 1} {5} {nope:1}")[1] == ()


def test_the_cell_of_a_command_is_its_file_in_any_spelling() -> None:
    for name, value in (("command", "{cell}"), ("Command", "{cell}"), ("args", "mine")):
        (line,) = header.lines(f"%{name}={{cell}}")
        assert expand(header.split(line, 0), {"cell": "mine"}).tokens[0].value == value


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


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ("{n}", "n"),
        ("$n", "n"),
        ("{2 * n}", "n"),
        ("{lr * n}", "n"),
        ("{lr}{n}", "n"),
        ("{n:.0f}", "n"),
        # None of these is meant as a variable of the notebook, or it is one.
        ("{{n}}", ""),
        ("$$n", ""),
        ("${n}", ""),
        ("{print}", ""),
        ("{n,m}", ""),
        ("{lr}", ""),
    ],
)
def test_a_wrong_value_names_the_variable_that_is_missing(value: str, missing: str) -> None:
    text = f"%framework=python\n%worker={value}\nprint(1)\n"
    with pytest.raises(DirectiveError, match=r"^%worker cannot be ") as caught:
        parse.parse(text, Registry().table, variables={"lr": 0.5})
    hint = f"The notebook has no variable {missing}: first run the cell that creates it."
    assert caught.value.hint == (hint if missing else "For example: %worker=1")
    with pytest.raises(DirectiveError) as caught:  # a file has no notebook
        parse.parse(text, Registry().table)
    assert caught.value.hint == "For example: %worker=1"


def test_no_hint_takes_a_part_of_a_password_for_a_variable() -> None:
    text = "%framework=python\n%envvar={hunter}\nprint(1)\n"
    with pytest.raises(DirectiveError) as caught:
        parse.parse(text, Registry().table, variables={})
    assert "hunter" not in f"{caught.value} {caught.value.hint}"
