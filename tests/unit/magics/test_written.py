"""The names under which a user finds the directives of a cell or a command line."""

from __future__ import annotations

from ciao_kernel.magics import parse
from ciao_kernel.magics.written import as_written
from ciao_kernel.session.plugin_registry import Registry

TABLE = Registry(third_party={}).table


def test_each_directive_is_named_with_its_lines() -> None:
    cell = (
        "%framework=tensorflow\n\n%IMAGE=a/b\n%worker=1;%cpu=1\n%ps=1;%cpu=2\n%labels=a=b\n"
        "%labels=c=d\n%labels=e=f\nx = 1\n"
    )
    names = as_written(parse.parse(cell, TABLE).tokens, TABLE)
    assert names["cluster.image"] == "%image (line 3)"
    assert names["cpu"] == "%cpu (lines 4 and 5)"
    assert names["cluster.labels"] == "%labels (lines 6, 7 and 8)"
    assert "cluster.ttl" not in names


def test_a_directive_twice_in_a_line_has_one_line() -> None:
    cell = "%framework=tensorflow\n%ps=1;%cpu=1;%worker=1;%cpu=2\nx = 1\n"
    assert as_written(parse.parse(cell, TABLE).tokens, TABLE)["cpu"] == "%cpu (line 2)"


def test_an_option_is_named_as_on_the_command_line() -> None:
    tokens = parse.parse("%framework=tensorflow\n%image=a/b\nx = 1\n", TABLE).tokens
    tokens += parse.option_tokens({"image": ["c/d"], "successPolicy": ["allWorkers"]})
    names = as_written(tokens, TABLE)
    assert names["cluster.image"] == "--image"
    assert names["cluster.success_policy"] == "--success-policy"
