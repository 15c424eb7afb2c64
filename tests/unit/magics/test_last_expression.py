"""A cell that ends like one of a notebook is told that a job shows nothing of it."""

from __future__ import annotations

import pytest

from ciao_kernel.magics.header import Style
from ciao_kernel.magics.parse import parse
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry({}).table
HEADER = "%framework=python\n%worker=1\n"
BEGIN = "a job is a program, and does not show its last line"


def notes(body: str, header: str = HEADER, style: Style = Style.CELL) -> tuple[str, ...]:
    return parse(header + body, TABLE, style=style).notes


@pytest.mark.parametrize("end", ["", "\n", "\n\n# the end\n", "  # a table\n"])
def test_a_name_can_be_printed_or_brought_back(end: str) -> None:
    assert notes(f"df = 1\ndf{end}") == (
        f"{BEGIN} `df`: write `print(df)`. "
        "%output=df brings back a number, text, list, array or table.",
    )


def test_a_name_that_comes_back_anyway() -> None:
    (note,) = notes("df = 1\ndf\n", HEADER + "%output=df\n")
    assert note == f"{BEGIN} `df`: write `print(df)`."


@pytest.mark.parametrize(
    "line",
    ["history.history", "df['loss']", "model.layers[0].name", "df[df.loss > f(2)].x", "df['ä;#b']"],
)
def test_a_part_of_a_value_can_be_printed(line: str) -> None:
    assert notes(f"import x\n{line}\n") == (f"{BEGIN} `{line}`: write `print({line})`.",)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("x = 'a\u2028b\x0c'\ndf.x", "df.x"),
        ("x = 1\r\n\x0cy = 2\r\ndf.x", "df.x"),
        ("x = 1\ry = 2\rdf.x", "df.x"),
        ("x = 'ä'\ndf.ä  # Größe", "df.ä"),
    ],
)
def test_lines_are_counted_as_python_does(body: str, shown: str) -> None:
    assert notes(body) == (f"{BEGIN} `{shown}`: write `print({shown})`.",)


def test_an_expression_of_several_lines_is_shown_as_one() -> None:
    assert notes("df[  # a row\ndf.x]") == (f"{BEGIN} `df[ # a row df.x]`: put it into `print()`.",)


def test_a_long_line_is_shown_once() -> None:
    line = "table['" + "x" * 80 + "']"
    assert notes(line) == (f"{BEGIN} `{line[:39]}…`: put it into `print()`.",)


@pytest.mark.parametrize(
    "body",
    [
        "df.head()",
        "model.fit(x)",
        "print(df)",
        "df;",
        "df.x ;  # quiet",
        "df['ä#1'];",
        "'a text'",
        "x = df",
        "x = [\n1,\ndf\n]",
        "'''\ndf\n'''",
        "if True:\n    df",
        "import x\nx.y = 1",
        "...",
        "1",
        "await_me: int",
    ],
)
def test_other_cells_get_no_note(body: str) -> None:
    assert notes(f"{body}\n") == ()


def test_files_and_other_languages_get_none() -> None:
    assert notes("df\n", "#%framework=python\n", Style.FILE) == ()
    assert notes("df\n", "%framework=custom\n%worker=1\n%command=cat\n") == ()
