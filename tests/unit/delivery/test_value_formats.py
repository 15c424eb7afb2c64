"""Dicts of arrays, such as the weights of a model: written in a replica, and read in the kernel."""

from __future__ import annotations

import base64
import json
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery.input import value_formats
from ciao_kernel.delivery.output import parquet_check, results, values_message
from ciao_kernel.delivery.output.result_writer import MARK
from ciao_kernel.model import Job, Replica, State, Status

numpy = pytest.importorskip("numpy")


def back(place: Path, value: Any) -> tuple[str, results.Results]:
    """Write a value as a replica does, and take it as from its pod."""
    suffix, data = value_formats.to_bytes("value", value, returned=True, sent=True)
    kind = value_formats.base_type(type(value))
    return suffix, given(place, f"value.{suffix}", data, kind)


def given(place: Path, file: str, data: bytes, kind: str = "builtins.dict") -> results.Results:
    entry = {"type": kind, "file": file, "data": base64.b64encode(data).decode()}
    assert values_message.unpack(
        MARK + json.dumps({"names": ["value"], "values": {"value": entry}}), place
    )
    return results.Results(place)


WEIGHTS = {
    "layer/kernel": numpy.arange(6, dtype="float32").reshape(2, 3).T,
    "file": numpy.array([True, False]),
    "allow_pickle": numpy.array(3, dtype="int64"),
}


def same(found: Any, expected: Any) -> None:
    assert list(found) == list(expected)
    for name, one in expected.items():
        assert found[name].dtype == one.dtype
        assert found[name].shape == one.shape
        assert (found[name] == one).all()


def test_weights_come_back_as_a_dict_of_arrays(tmp_path: Path) -> None:
    suffix, found = back(tmp_path, WEIGHTS)
    assert suffix in ("npz", "safetensors")
    same({name: found["value"][name] for name in WEIGHTS}, WEIGHTS)


def test_safetensors_is_the_format_where_the_package_is(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    suffix, found = back(tmp_path, WEIGHTS)
    assert suffix == "safetensors"
    assert "3 arrays (" in repr(found)


def test_types_that_safetensors_lacks_are_npz(tmp_path: Path) -> None:
    value = {"words": numpy.array(["a", "bc"]), "z": numpy.array([1j])}
    suffix, found = back(tmp_path, value)
    assert suffix == "npz"
    same(found["value"], value)
    assert repr(found) == "<results: value=2 arrays (words, z)>"


def test_views_have_their_own_values_and_not_what_is_beside_them_in_memory(tmp_path: Path) -> None:
    base = numpy.arange(24, dtype="float64").reshape(2, 3, 4)
    views = {
        "turned": base.T,
        "every second": base[:, :, ::2],
        "from the end": base[::-1],
        "repeated": numpy.broadcast_to(numpy.float64(3), (5,)),
        "number": numpy.array(3.0),
    }
    _, found = back(tmp_path, views)
    same({name: found["value"][name] for name in views}, views)


def test_types_that_numpy_lacks_are_refused_also_where_safetensors_has_them() -> None:
    """The kernel need not have the package that adds them."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(ValueError, match="numpy files cannot store the type bfloat16"):
        value_formats.to_bytes(
            "value", {"a": numpy.ones(2, ml_dtypes.bfloat16), "b": numpy.ones(2)}, returned=True
        )


def test_a_state_dict_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    _, found = back(tmp_path, layers.state_dict())
    same(
        {name: found["value"][name] for name in layers.state_dict()},
        {name: one.numpy() for name, one in layers.state_dict().items()},
    )


@pytest.mark.parametrize(
    "value",
    [{}, {"loss": numpy.float32(0.25)}, {"loss": numpy.array(0.25)}, OrderedDict(a=1)],
)
def test_numbers_stay_json(tmp_path: Path, value: Any) -> None:
    suffix, found = back(tmp_path, value)
    assert suffix == "json"
    assert found["value"] == {name: float(one) for name, one in value.items()}


@pytest.mark.parametrize(
    "value",
    [
        {"a": numpy.ones(2), "b": "text"},
        {"a": {"b": numpy.ones(2)}},
        {1: numpy.ones(2)},
        {"a": numpy.ones(2), "b": numpy.array([{}], dtype=object)},
        {"a": numpy.ma.MaskedArray([1, 2], [True, False])},
    ],
)
def test_others_are_refused_and_nothing_is_pickled(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        value_formats.to_bytes("value", value, returned=True)


def test_a_notebook_hands_over_no_dict_of_arrays() -> None:
    """Its replicas need not have the package that the kernel has."""
    with pytest.raises(value_formats.NotStorable):
        value_formats.to_bytes("value", {"a": numpy.ones(2)})


def test_a_pod_that_sends_something_else_as_arrays_is_not_believed(tmp_path: Path) -> None:
    data = tmp_path / "made"
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1000))
    with pytest.raises(ValueError, match="compressed"):
        given(tmp_path / "1", "value.npz", data.read_bytes())["value"]
    numpy.savez(data.with_suffix(".npz"), a=numpy.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        given(tmp_path / "2", "value.npz", data.with_suffix(".npz").read_bytes())["value"]
    with pytest.raises(zipfile.BadZipFile):
        given(tmp_path / "3", "value.npz", b"text")["value"]
    assert repr(given(tmp_path / "4", "value.npz", b"text")) == "<results: value=dict (4 bytes)>"


def table(**columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


@pytest.mark.parametrize("make", ["many", "types", "missing", "empty"])
def test_a_table_comes_back_as_it_was(tmp_path: Path, make: str) -> None:
    pandas = pytest.importorskip("pandas")
    value = {
        "many": lambda: table(word=["the same"] * 5000, flag=[True] * 5000),
        "types": lambda: table(
            kind=pandas.Categorical(["a", "b", "a"]),
            when=pandas.date_range("2026-01-01", periods=3, tz="Europe/Berlin"),
            list=[[1, 2], [], None],
            raw=[b"x", None, b""],
            part=[{"a": 1.5}] * 3,
        ),
        "missing": lambda: table(nothing=[None] * 10_000, number=[float("nan")] * 10_000),
        "empty": table,
    }[make]()
    suffix, found = back(tmp_path, value)
    assert suffix == "parquet"
    pandas.testing.assert_frame_equal(found["value"], value)
    pandas.testing.assert_frame_equal(pandas.read_parquet(tmp_path / "value.parquet"), value)


def test_a_table_of_a_pod_is_not_much_larger_than_a_compressed_one() -> None:
    """The message of a pod has room for 3,000 bytes."""
    words = ["train", "validation", "test"]
    value = table(part=[words[number % 3] for number in range(1000)], ok=["yes"] * 1000)
    _, data = value_formats.to_bytes("value", value, returned=True, sent=True)
    assert len(data) < 3000 < len(zlib.decompress(data))


def test_a_table_that_the_kernel_would_not_unpack_travels_plain() -> None:
    plain = b"PAR1" + bytes(1 << 26)
    assert value_formats._packed(plain) == plain
    assert zlib.decompress(value_formats._packed(plain[:-4])) == plain[:-4]


def test_a_table_that_would_be_much_larger_in_memory_is_refused(tmp_path: Path) -> None:
    frame = table(text=["x" * 1000] * 100)

    def refused(place: str, **options: Any) -> str:
        data = frame.to_parquet(engine="pyarrow", **options)
        with pytest.raises(ValueError, match=r"value\.parquet ") as caught:
            given(tmp_path / place, "value.parquet", data, "pandas.DataFrame")["value"]
        assert caught.value.__notes__ == [
            f"The value is the file {tmp_path / place / 'value.parquet'}; pandas.read_parquet "
            "reads it if you trust the job."
        ]
        return str(caught.value)

    assert refused("1", compression=None) == "value.parquet is compressed"  # by a dictionary
    assert refused("2", use_dictionary=False) == "value.parquet is compressed"
    prefixes = {"text": "DELTA_BYTE_ARRAY"}
    options = {"compression": None, "use_dictionary": False, "column_encoding": prefixes}
    assert refused("3", **options) == "value.parquet is compressed"


def test_a_table_of_this_machine_has_any_size(tmp_path: Path) -> None:
    """Its job is the user's own program, and its file is an ordinary one."""
    value = table(text=["x" * 1000] * 1000, nothing=[None] * 1000)
    _, data = value_formats.to_bytes("value", value, returned=True)
    assert len(data) < 10_000
    worker = Replica("worker", 0)
    job = Job("j", "local", "python", (worker,), 1.0, folder=str(tmp_path), kind_of_place="folder")
    given(results.folder(job.files, worker), "value.parquet", data, "pandas.DataFrame")
    _, found = results.of_job(job, Status(State.SUCCEEDED, ()))
    assert len(found["value"]) == 1000
    _, found = results.of_job(replace(job, kind_of_place="namespace"), Status(State.SUCCEEDED, ()))
    with pytest.raises(ValueError, match="compressed"):
        found["value"]


def test_a_table_of_many_missing_values_is_refused(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file, nothing = tmp_path / "value.parquet", pyarrow.nulls(1000, pyarrow.binary(1000))
    options = {"compression": "none", "use_dictionary": False}
    parquet.write_table(pyarrow.table({"a": nothing}), file, **options)
    assert file.stat().st_size < 1000
    parquet_check.check(file)
    parquet_check.check(file, always=1_000_000)
    with pytest.raises(ValueError, match="has too many values for its"):
        parquet_check.check(file, always=900_000)
