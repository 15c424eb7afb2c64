"""What a pod says about its values is foreign input: nothing of it is believed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery import results
from ciao_kernel.delivery.result_writer import MARK


def message(values: Any, names: Any = ("value",)) -> str:
    return MARK + json.dumps({"names": names, "values": values})


def entry(file: Any, data: str = "1", kind: Any = "builtins.int") -> dict[str, Any]:
    return {"type": kind, "file": file, "data": base64.b64encode(data.encode()).decode()}


def test_a_message_of_a_program_is_not_taken_for_values(tmp_path: Path) -> None:
    for text in ("", "Traceback: boom", '{"values": {}}', MARK + "{", MARK + "[1]"):
        assert not results.unpack(text, tmp_path / "values")
    assert not (tmp_path / "values").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"value": entry("../value.json")},
        {"value": entry("/etc/passwd")},
        {"value": entry("other.json")},
        {"value": entry("value.pkl")},
        {"value": entry(3)},
        {"../value": entry("../value.json")},
        {"value": {"file": "value.json", "data": "not base64!"}},
        {"value": {"file": "value.json", "data": 3}},
        {"value": 3},
        [3],
        None,
    ],
)
def test_a_hostile_message_writes_no_other_file(tmp_path: Path, values: Any) -> None:
    results.unpack(message(values), tmp_path / "deep" / "values")
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written <= {".index.json"}
    found = results.Results(tmp_path / "deep" / "values")
    assert dict(found) == {}
    assert found.fault("value")


def test_arrays_with_pickled_objects_are_not_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    place = tmp_path / "values"
    results.unpack(message({"value": entry("value.npy", kind="numpy.ndarray")}), place)
    numpy.save(place / "value.npy", numpy.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        results.Results(place)["value"]


def test_a_type_that_is_not_known_here_is_read_by_its_format(tmp_path: Path) -> None:
    results.unpack(message({"value": entry("value.json", "[1]", kind=["x"])}), tmp_path / "v")
    assert results.Results(tmp_path / "v")["value"] == [1]
