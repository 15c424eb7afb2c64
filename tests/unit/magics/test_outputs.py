"""The words of %output: names of variables and paths of files."""

from __future__ import annotations

import pytest

from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics.directives import outputs
from ciao_kernel.magics.parse import parse
from ciao_kernel.magics.render import render
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.session.plugin_registry import Registry


def words(*lines: str) -> tuple[str, ...]:
    return parse("%framework=python\n" + "\n".join(lines) + "\nx = 1\n", TABLE).spec.outputs


TABLE = Registry({}).table


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%output", ("output/",)),
        ("%output  # the folder", ("output/",)),
        ("%output=metrics, weights", ("metrics", "weights")),
        ("%output=model/ log.csv metrics", ("model/", "log.csv", "metrics")),
        ("%output=./metrics *.pt ./metrics", ("./metrics", "*.pt")),
        ("%output='my model/'", ("my model/",)),
        ("%output='res,final.csv' a.csv,b.csv", ("res,final.csv", "a.csv", "b.csv")),
        ('%output=res\\,final.csv,"a, b.csv"', ("res,final.csv", "a, b.csv")),
        ("%output='a;b.csv' \"c;d.csv\" e\\;f.csv", ("a;b.csv", "c;d.csv", "e;f.csv")),
        ("%output='a\u202fb.csv' 'c\xa0d.csv'", ("a\u202fb.csv", "c\xa0d.csv")),
        ("%output=by:log", ("output/", "by:log")),
        ("%output=metrics, log.csv by:exec", ("metrics", "log.csv", "by:exec")),
    ],
)
def test_words(line: str, found: tuple[str, ...]) -> None:
    assert words(line) == found


def test_lines_add_up_and_the_stored_header_has_them_all() -> None:
    spec = parse("%framework=python\n%output\n%output=metrics 'a b.csv'\nx = 1\n", TABLE).spec
    assert spec.outputs == ("output/", "metrics", "a b.csv")
    assert (spec.output_names, spec.output_paths) == (("metrics",), ("output/", "a b.csv"))
    assert outputs.words_in(render(spec, TABLE)) == spec.outputs
    spec = parse("%framework=python\n%output='a,b.csv' \"it's, c.csv\"\nx = 1\n", TABLE).spec
    assert outputs.words_in(render(spec, TABLE)) == ("a,b.csv", "it's, c.csv")
    spec = parse("%framework=python\n%output='a;b.csv' 'c\xa0d.csv'\nx = 1\n", TABLE).spec
    assert outputs.words_in(render(spec, TABLE)) == ("a;b.csv", "c\xa0d.csv")


def test_a_way_is_neither_a_path_nor_a_variable() -> None:
    spec = parse("%framework=python\n%output=metrics a.csv by:log\nx = 1\n", TABLE).spec
    assert (spec.output_names, spec.output_paths) == (("metrics",), ("a.csv",))
    assert spec.output_ways == (OutputWay.LOG,)
    assert outputs.paths(render(spec, TABLE)) == ("a.csv",)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%output=/tmp/a.csv", "a path relative to the program's folder"),
        ("%output=~/a.csv", "a path relative to the program's folder"),
        ("%output=model/../../a", "a path inside the program's folder"),
        ("%output=./", "not that folder itself"),
        ("%output=my-model", "./ before a name makes it a path"),
        ("%output=s3://bucket/x", "the setting outputStore"),
        ("%output=model/;log.csv", "separated by spaces"),
        ("%output=model.pt:by:s3", "separated by spaces"),
        ("%output='a\x1b[31m.csv'", "a path without control characters"),
        ("%output='a\u2028b.csv'", "a path without control characters"),
        ("%output=model/\u200b", "a path without control characters"),
        ("%output='a\u202eb.csv'", "or others that nobody can see"),
        ("%output=model/\xa0log.csv", "words that are separated by spaces"),
        ("%output='a b.csv';c.csv", "separated by spaces"),
        ("%output=by:mail", "by:auto or by:exec or by:log"),
        ("%output=", "has no value"),
    ],
)
def test_what_is_neither_is_refused_with_its_line(line: str, expected: str) -> None:
    with pytest.raises(DirectiveError) as caught:
        words(line)
    assert expected in caught.value.message
    assert caught.value.line == 2
