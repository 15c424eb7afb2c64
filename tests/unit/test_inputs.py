"""Variables as files: what %input delivers, and what it refuses."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ciao_kernel.errors import DirectiveError, SpecError
from ciao_kernel.inputs import deliver
from ciao_kernel.magics import parse
from ciao_kernel.model import Source, SourceFile
from ciao_kernel.registry import Registry

SOURCE = Source(SourceFile("ciao_cell.py", b""), files=(SourceFile("z.csv", b"1"),))
CELL = "%framework=tensorflow\n%worker=1\n%input=df labels\n%input=more\n%input=last\nprint()\n"


def delivered(**variables: Any) -> dict[str, bytes]:
    source = deliver(SOURCE, variables, variables)
    return {file.path: file.data for file in source.files if file.path != "z.csv" and file.data}


def refused(names: list[str], variables: dict[str, Any] | None) -> SpecError:
    with pytest.raises(SpecError) as caught:
        deliver(SOURCE, names, variables)
    assert caught.value.directive == "input"
    return caught.value


def test_a_data_frame_comes_back_with_its_types_and_index() -> None:
    days = pd.date_range("2026-11-01", periods=3, name="day")
    frame = pd.DataFrame({"loss": [0.5, None, 0.25], "kind": pd.Categorical(list("aba"))}, days)

    files = delivered(df=frame)

    assert list(files) == ["input/df.parquet"]
    back = pd.read_parquet(io.BytesIO(files["input/df.parquet"]))
    pd.testing.assert_frame_equal(back, frame, check_freq=False)


@pytest.mark.parametrize(
    ("index", "text"),
    [(None, "a\n1\n2\n"), (["x", "y"], ",a\nx,1\ny,2\n"), ([1, 0], ",a\n1,1\n0,2\n")],
)
def test_without_pyarrow_a_data_frame_is_csv(
    index: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    files = delivered(df=pd.DataFrame({"a": [1, 2]}, index))

    assert files == {"input/df.csv": text.encode()}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="int16").reshape(2, 3),
        np.array(3.5),
        np.array(["é", "ab"]),
        np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros((0, 4)),
    ],
)
def test_an_array_comes_back_as_it_was(array: np.ndarray) -> None:
    files = delivered(x=array)

    back = np.load(io.BytesIO(files["input/x.npy"]), allow_pickle=False)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ({"lr": 0.1, "sizes": [64, 10], "name": "é"}, None),
        ("text", None),
        (None, None),
        (True, None),
        ((1, 2), [1, 2]),
        ({"n": np.int64(3), "loss": np.float32(0.5)}, {"n": 3, "loss": 0.5}),
    ],
)
def test_what_json_holds_is_json(value: Any, back: Any) -> None:
    files = delivered(value=value)

    assert json.loads(files["input/value.json"]) == (value if back is None else back)


def test_files_keep_their_order_and_no_variable_comes_twice() -> None:
    source = deliver(SOURCE, ["b", "a", "b"], {"a": 1, "b": 2})

    assert [(file.path, file.size) for file in source.files] == [
        ("input/a.json", 1),
        ("input/b.json", 1),
        ("z.csv", 0),
    ]
    assert source.entry is SOURCE.entry


def test_a_name_that_no_cell_made_offers_the_nearest() -> None:
    error = refused(["labls"], {"labels": 1, "_labls": 2})
    assert error.message == "%input names labls, and there is no variable of that name."
    assert error.hint == "Did you mean labels?"
    assert refused(["df"], {}).hint == "Run the cell that makes it first."


def test_a_command_line_has_no_variables() -> None:
    error = refused(["df"], None)
    assert error.message == "%input names variables of a notebook, and here is none."
    assert "%files" in error.hint


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (object(), "no file holds a value of type object"),
        ({1, 2}, "no file holds a value of type set"),
        (b"bytes", "no file holds a value of type bytes"),
        ({"x": np.zeros(2)}, "no file holds a value of type ndarray"),
        (pd.Series([1]), "no file holds a value of type Series"),
        (np.array([object()]), "a ndarray: Object arrays cannot be saved"),
        (np.ma.masked_array([1], [True]), "a MaskedArray: numpy's files do not keep a mask"),
        (pd.DataFrame({"a": [object()]}), "a DataFrame: "),
        ("\ud800", "a str: "),
    ],
)
def test_what_has_no_file_is_named_with_its_type(value: Any, told: str) -> None:
    error = refused(["x"], {"x": value})
    assert error.message.startswith("%input cannot take x")
    assert told in error.message
    assert "\n" not in error.message
    assert "%files" in error.hint


@pytest.mark.parametrize(
    "value",
    [{0: "cat"}, {1: "a", "1": "b"}, {"x": [({None: 1},)]}, {"x": {True: 1}}, [{1.5: 1}]],
)
def test_a_key_that_would_become_text_is_refused(value: Any) -> None:
    error = refused(["x"], {"x": value})
    assert error.message.startswith("%input cannot take x, a ")
    assert "JSON has only text as keys" in error.message
    assert "%files" in error.hint


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "a list: " in refused(["x"], {"x": endless}).message


def test_a_file_of_the_same_place_is_not_hidden() -> None:
    source = Source(SOURCE.entry, files=(SourceFile("input/x.json", b"1"),))
    with pytest.raises(SpecError) as caught:
        deliver(source, ["x"], {"x": 2})
    assert caught.value.message == "input/x.json is one of %files too."


def test_names_add_up_and_must_be_names() -> None:
    table = Registry(third_party={}).table
    assert parse.parse(CELL, table).spec.inputs == ("df", "labels", "more", "last")
    for value in ("df.values", "1st", "df,labels", "'a b'"):
        with pytest.raises(DirectiveError) as caught:
            parse.parse(f"%framework=tensorflow\n%input={value}\nprint()\n", table)
        assert "names of variables" in caught.value.message
        assert caught.value.line == 2


@pytest.mark.parametrize(("name", "line"), [("labels", 3), ("more", 4), ("last", 5)])
def test_the_line_that_names_it_is_blamed(name: str, line: int) -> None:
    parsed = parse.parse(CELL, Registry(third_party={}).table)
    error = parsed.locate(refused([name], {}))
    assert isinstance(error, DirectiveError)
    assert (error.line, error.column) == (line, len("%input="))
