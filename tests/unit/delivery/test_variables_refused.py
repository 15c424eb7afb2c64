"""Variables that no file holds: what %input says, and where."""

from __future__ import annotations

import datetime
import enum
from collections import Counter, defaultdict, namedtuple
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciao_kernel.delivery.input.variables import deliver
from ciao_kernel.errors import DirectiveError, SpecError
from ciao_kernel.magics import parse
from ciao_kernel.model import Source, SourceFile
from ciao_kernel.session.plugin_registry import Registry

SOURCE = Source(SourceFile("ciao_cell.py", b""))
CELL = "%framework=tensorflow\n%worker=1\n%input=df labels\n%input=more\n%input=last\nprint()\n"


def refused(names: list[str], variables: dict[str, Any] | None) -> SpecError:
    with pytest.raises(SpecError) as caught:
        deliver(SOURCE, names, variables)
    assert caught.value.directive == "input"
    return caught.value


def test_a_name_that_no_cell_made_offers_the_nearest() -> None:
    error = refused(["labls"], {"labels": 1, "_labls": 2})
    assert error.message == "%input names labls, but there is no variable of that name."
    assert error.hint == "Did you mean labels?"
    assert refused(["df"], {}).hint == "First run the cell that creates it."


def test_a_command_line_has_no_variables() -> None:
    error = refused(["df"], None)
    assert error.message == "%input names variables of a notebook, but there is no notebook here."
    assert "%files" in error.hint


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "no file format supports values of type object"),
        ({1, 2}, "no file format supports values of type set"),
        (np.longdouble(1), "no file format supports values of type longdouble."),
        (np.datetime64("2026-11-22", "ns"), "no file format supports values of type datetime64."),
        (np.array([object()]), "a ndarray: Object arrays cannot be saved"),
        (np.ma.masked_array([1], [True]), "a MaskedArray: numpy files cannot store a mask"),
        (np.matrix([[1]]), "a matrix: numpy files store no matrix"),
        (np.rec.array([(1, 2.0)]), "a recarray: numpy files store no recarray"),
        (
            pd.DataFrame({"a": [1, "b"]}),
            "a DataFrame: Could not convert 'b' with type str: tried to convert to int64. "
            "Conversion failed for column a with type object.",
        ),
        ("\ud800", "a str: "),
    ],
)
def test_what_has_no_file_is_named_with_its_type(value: Any, told: str) -> None:
    error = refused(["x"], {"x": value})
    assert error.message.startswith("%input cannot take x")
    assert told in error.message
    assert "\n" not in error.message
    assert "%files" in error.hint


Point = namedtuple("Point", "x y")
Level = enum.IntEnum("Level", "LOW HIGH")
Word = type("Word", (str,), {})
Raw = type("Raw", (bytes,), {})


@pytest.mark.parametrize(
    ("value", "kind", "hint"),
    [
        (defaultdict(list, a=[1]), "defaultdict", "Name a variable that holds dict(x), or"),
        (Point(1, 2), "Point", "Name a variable that holds tuple(x), or"),
        (Level.LOW, "Level", "Name a variable that holds x.value, or"),
        (Word("a"), "Word", "Name a variable that holds str(x), or"),
        (Raw(b"a"), "Raw", "Name a variable that holds bytes(x), or"),
        ({"w": [Counter("ab")]}, "Counter", "Replace it with dict(x['w'][0]), or"),
        ([0, Level.LOW], "Level", "Replace it with x[1].value, or"),
        (Counter(a=Level.LOW), "Level", "Replace it with x['a'].value, or"),
        (enum.Enum("Color", "RED").RED, "Color", "Name a variable that holds x.value, or"),
    ],
)
def test_a_type_that_the_file_would_turn_into_a_plain_one_is_refused(
    value: Any, kind: str, hint: str
) -> None:
    error = refused(["x"], {"x": value})
    assert f"no file format supports values of type {kind}" in error.message
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ({1}, "Name a variable that holds list(x), or"),
        (datetime.date(2026, 11, 22), "Name a variable that holds x.isoformat(), or"),
        (pd.Timestamp("2026"), "Name a variable that holds x.isoformat(), or"),
        (np.longdouble(1), "Name a variable that holds float(x), or"),
        (np.datetime64("2026"), "Name a variable that holds str(x), or"),
        (PurePath("a"), "Name a variable that holds str(x), or"),
        (pd.Categorical(["a"]), "Name a variable that holds x.to_numpy(), or"),
        (len, "Use a type that pandas, numpy or JSON can store, or"),
        (pd.DataFrame({"a": [1, "b"]}), "Give each column one type, or"),
        ({"w": {1}}, "Replace it with list(x['w']), or"),
        ({"w": [0, np.zeros(2)]}, "Make it a separate variable, and name that too, or"),
    ],
)
def test_the_hint_fits_the_type(value: Any, hint: str) -> None:
    assert refused(["x"], {"x": value}).hint.startswith(hint)


def test_what_is_inside_another_value_is_named_with_its_place() -> None:
    endless: list[Any] = []
    endless += [endless, {"w": [1, np.zeros(2)]}]

    for value, place in (({"a": (0, {1})}, "x['a'][1]"), ([pd.Series([1])], "x[0]")):
        said = refused(["x"], {"x": value}).message
        assert "no file format supports values of type" in said
        assert said.endswith(f" inside another value, such as {place}.")
    assert "such as x[0]." in refused(["x"], {"x": [{1}, endless]}).message


def test_an_array_whose_type_the_file_would_lose_is_refused() -> None:
    halves = np.dtype((np.int32, {"low": (np.int16, 0), "high": (np.int16, 2)}))
    message = refused(["x"], {"x": np.zeros(2, halves)}).message
    assert "numpy files cannot store the type" in message


@pytest.mark.parametrize(
    "value",
    [{0: "cat"}, {1: "a", "1": "b"}, {"x": [({None: 1},)]}, {"x": {True: 1}}, [{1.5: 1}]],
)
def test_a_key_that_would_become_text_is_refused(value: Any) -> None:
    error = refused(["x"], {"x": value})
    assert error.message.startswith("%input cannot take x, a ")
    assert "JSON allows only text as keys" in error.message
    assert "%files" in error.hint


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "a list: " in refused(["x"], {"x": endless}).message


def test_a_file_of_the_same_place_is_not_hidden() -> None:
    source = Source(SOURCE.entry, files=(SourceFile("input/x.json", b"1"),))
    with pytest.raises(SpecError) as caught:
        deliver(source, ["x"], {"x": 2})
    assert caught.value.message == "%files already includes input/x.json."


def test_a_file_in_the_place_of_the_folder_is_refused() -> None:
    source = Source(SOURCE.entry, files=(SourceFile("input", b"1"),))
    with pytest.raises(SpecError) as caught:
        deliver(source, ["x"], {"x": 2})
    assert caught.value.message == (
        "%files includes a file named input, but %input creates a folder of that name."
    )
    assert caught.value.hint == "Rename the file."
    assert caught.value.directive == "input"


@pytest.mark.parametrize(("name", "line"), [("labels", 3), ("more", 4), ("last", 5)])
@pytest.mark.parametrize("between", [" ", ",", ", "])
def test_the_line_that_names_it_is_blamed(name: str, line: int, between: str) -> None:
    cell = CELL.replace("df labels", f"df{between}labels")
    parsed = parse.parse(cell, Registry(third_party={}).table)
    error = parsed.locate(refused([name], {}))
    assert isinstance(error, DirectiveError)
    assert (error.line, error.column) == (line, len("%input="))
