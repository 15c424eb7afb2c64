"""Completion of ``%input``; ``|`` marks the cursor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel.magics.help.completion import complete
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table
TF = "%framework=tensorflow\n"


def variables(marked: str, *names: str) -> tuple[str, tuple[str, ...]]:
    """The text once the first match is taken, if there is any, and all matches."""
    cursor = marked.index("|")
    text = marked[:cursor] + marked[cursor + 1 :]
    found = complete(text, cursor, TABLE, Path("/"), variables=iter(names))
    assert found is not None
    if found.matches:
        text = text[: found.start] + found.matches[0] + text[found.end :]
    return text, found.matches


NAMES = ("labels", "df", "df_test", "größe", "_", "_secret", "no name")


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("%input=|", "%input=df", ("df", "df_test", "größe", "labels")),
        ("%input |", "%input df", ("df", "df_test", "größe", "labels")),
        ("%input=d|", "%input=df", ("df", "df_test")),
        ("%input=df|", "%input=df", ("df", "df_test")),
        ("%input=df |", "%input=df df_test", ("df_test", "größe", "labels")),
        ("%input=df,|", "%input=df,df_test", ("df_test", "größe", "labels")),
        ("%input=df, la|", "%input=df, labels", ("labels",)),
        ("%input=la|be,df", "%input=labels,df", ("labels",)),
        ("%input=d| df;%worker=2", "%input=df_test df;%worker=2", ("df_test",)),
        ("%input=gr|", "%input=größe", ("größe",)),
        ("%input=_s|", "%input=_secret", ("_secret",)),
        ("%input=df.la|", "%input=df.la", ()),
        ("%input=df # la|", "%input=df # la", ()),
        ("%input=zz|", "%input=zz", ()),
        (TF + "%input=df\n%input=d|", TF + "%input=df\n%input=df_test", ("df_test",)),
        (TF + "%input=d|\n%input=df", TF + "%input=df_test\n%input=df", ("df_test",)),
    ],
)
def test_variables(marked: str, text: str, expected: tuple[str, ...]) -> None:
    assert variables(marked, *NAMES) == (text, expected)


def test_variables_are_asked_for_nowhere_else() -> None:
    def names() -> Iterator[str]:
        raise AssertionError
        yield

    assert complete(TF + "%wo", len(TF) + 3, TABLE, Path("/"), variables=names()) is not None
