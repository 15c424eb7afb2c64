"""Variables as files: what %input delivers."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from IPython.utils.text import SList

from ciao_kernel.delivery.input.variables import deliver, storable_names
from ciao_kernel.errors import DirectiveError
from ciao_kernel.magics import parse
from ciao_kernel.model import Source, SourceFile
from ciao_kernel.session.plugin_registry import Registry

SOURCE = Source(SourceFile("ciao_cell.py", b""), files=(SourceFile("z.csv", b"1"),))
CELL = "%framework=tensorflow\n%worker=1\n%input=df labels\n%input=more\n%input=last\nprint()\n"


def delivered(**variables: Any) -> dict[str, bytes]:
    source = deliver(SOURCE, variables, variables)
    return {file.path: file.data for file in source.files if file.path != "z.csv" and file.data}


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


SERIES = pd.Series(pd.Categorical(list("aba")), ["x", "y", "z"], name="kind")
DAYS = pd.DatetimeIndex(["2026-11-01", "2026-11-02"], tz="UTC")


@pytest.mark.parametrize("name", ["kind", None, 3])
def test_a_series_comes_back_with_its_types_and_index(name: Any) -> None:
    files = delivered(labels=SERIES.rename(name))

    back = pd.read_parquet(io.BytesIO(files["input/labels.parquet"])).squeeze("columns")
    pd.testing.assert_series_equal(back, SERIES.rename(name or "labels"))


@pytest.mark.parametrize("index", [pd.Index(["a", "b"], name="k"), DAYS, pd.Index([7])])
def test_an_index_comes_back_as_a_series_of_its_values(index: pd.Index) -> None:
    files = delivered(labels=index)

    back = pd.read_parquet(io.BytesIO(files["input/labels.parquet"])).squeeze("columns")
    pd.testing.assert_index_equal(pd.Index(back), index, check_names=False, exact=False)
    assert back.name == (index.name or "labels")


def test_names_of_columns_and_rows_mean_nothing() -> None:
    names = ["levels", "columns", "index", "name"]
    files = delivered(df=pd.DataFrame([[1] * 4], columns=names), s=pd.Series([1] * 4, names))

    assert pd.read_parquet(io.BytesIO(files["input/df.parquet"])).columns.tolist() == names
    back = pd.read_parquet(io.BytesIO(files["input/s.parquet"])).squeeze("columns")
    assert back.index.tolist() == names


def test_an_index_of_several_levels_is_a_table() -> None:
    files = delivered(pairs=pd.MultiIndex.from_product([[1, 2], ["a"]], names=["n", None]))

    back = pd.read_parquet(io.BytesIO(files["input/pairs.parquet"]))
    assert back.to_dict("list") == {"n": [1, 2], "1": ["a", "a"]}


def test_without_pyarrow_a_series_is_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert delivered(s=pd.Series([1, 2])) == {"input/s.csv": b"s\n1\n2\n"}
    assert delivered(s=SERIES) == {"input/s.csv": b",kind\nx,a\ny,b\nz,a\n"}
    assert delivered(s=SERIES.index) == {"input/s.csv": b"s\nx\ny\nz\n"}


@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x00\xff")])
def test_bytes_are_a_file_of_them(value: Any) -> None:
    assert delivered(raw=value) == {"input/raw.bin": b"\x00\xff"}


def test_a_tensor_is_an_array() -> None:
    """Also where PyTorch is older than 1.13, which has no ``numpy(force=True)``."""
    steps: list[str] = []

    def step(name: str) -> Any:
        return lambda self: steps.append(name) or self

    methods = {name: step(name) for name in ("detach", "cpu", "resolve_conj", "resolve_neg")}
    for known in (("detach", "cpu"), tuple(methods)):
        steps.clear()
        own = {name: methods[name] for name in known}
        Tensor = type("Tensor", (), {**own, "__module__": "torch", "numpy": lambda _: np.ones(2)})
        files = delivered(weights=type("Parameter", (Tensor,), {})())
        assert np.load(io.BytesIO(files["input/weights.npy"])).tolist() == [1, 1]
        assert steps == list(known)


def test_a_tensor_of_torch_that_numpy_takes_only_resolved() -> None:
    torch = pytest.importorskip("torch")
    value = torch.tensor([1 + 2j], requires_grad=True).conj()
    files = delivered(z=value, minus=value.imag)
    assert np.load(io.BytesIO(files["input/z.npy"])).tolist() == [1 - 2j]
    assert np.load(io.BytesIO(files["input/minus.npy"])).tolist() == [-2]


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ({"lr": 0.1, "sizes": [64, 10], "name": "é"}, None),
        ("text", None),
        (None, None),
        (True, None),
        ((1, 2), [1, 2]),
        ({"n": np.int64(3), "loss": np.float32(0.5)}, {"n": 3, "loss": 0.5}),
        ([np.float64(0.5), np.bool_(True), np.str_("a")], [0.5, True, "a"]),
        (SList(["a.csv", "b.csv"]), ["a.csv", "b.csv"]),
        (pd.DataFrame({"a": [1]}).rename_axis("n").index.names, ["n"]),
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


def test_travelling_names_what_has_a_form_and_asks_the_values_nothing() -> None:
    class Closed:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("not bound")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("not connected")

    good = {"df": pd.DataFrame(), "s": SERIES, "i": DAYS, "a": np.ma.zeros(1), "n": np.float32(1)}
    more = {"raw": b"", "text": "", "none": None, "d": {}, "flag": True}
    bad = {"f": len, "np": np, "C": Closed, "c": Closed(), "o": object(), "set": {1}}

    assert list(storable_names({**good, **bad, **more})) == [*good, *more]


def test_names_add_up_and_must_be_names() -> None:
    table = Registry(third_party={}).table
    assert parse.parse(CELL, table).spec.inputs == ("df", "labels", "more", "last")
    commas = "%framework=tensorflow\n%input=df, labels,more\nprint()\n"
    assert parse.parse(commas, table).spec.inputs == ("df", "labels", "more")
    for value in ("df.values", "1st", ",", "'a b'x"):
        with pytest.raises(DirectiveError) as caught:
            parse.parse(f"%framework=tensorflow\n%input={value}\nprint()\n", table)
        assert "names of variables" in caught.value.message
        assert caught.value.line == 2
