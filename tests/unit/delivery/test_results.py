"""What a pod says about its values is foreign input: nothing of it is believed."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery.output import results, values_message
from ciao_kernel.delivery.output.large_values import LargeValues
from ciao_kernel.delivery.output.result_writer import MARK


def message(values: Any, names: Any = ("value",)) -> str:
    return MARK + json.dumps({"names": names, "values": values})


def entry(file: Any, data: str = "1", kind: Any = "builtins.int") -> dict[str, Any]:
    return {"type": kind, "file": file, "data": base64.b64encode(data.encode()).decode()}


def test_a_message_of_a_program_is_not_taken_for_values(tmp_path: Path) -> None:
    for text in ("", "Traceback: boom", '{"values": {}}', MARK + "{", MARK + "[1]"):
        assert not values_message.unpack(text, tmp_path / "values")
    assert not (tmp_path / "values").exists()


def test_a_message_that_the_cluster_has_cut_is_said(tmp_path: Path) -> None:
    """As the writer makes it, and as a node passes it on in a pod of many containers."""
    index = {"names": ["value", "other"], "values": {"value": entry("value.json", "x" * 3000)}}
    text = MARK + json.dumps(index, separators=(",", ":"))
    assert values_message.unpack(text[: 12 * 1024 // 5], tmp_path / "values")
    found = results.Results(tmp_path / "values")
    assert dict(found) == {}
    for name in ("value", "other"):
        assert "has so many containers that the cluster has cut the message" in found.fault(name)
    assert "was not asked for" in found.fault("third")


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
    values_message.unpack(message(values), tmp_path / "deep" / "values")
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written <= {".index.json"}
    found = results.Results(tmp_path / "deep" / "values")
    assert dict(found) == {}
    assert found.fault("value")


def test_followers_in_one_process_save_the_values_at_once(tmp_path: Path) -> None:
    """They, and kernels in two pods with one home, have one process number."""
    text = message({"value": entry("value.json")})
    with ThreadPoolExecutor(4) as threads:
        saved = list(threads.map(lambda _: values_message.unpack(text, tmp_path), range(400)))
    assert saved == [True] * 400
    assert dict(results.Results(tmp_path)) == {"value": 1}
    assert {path.name for path in tmp_path.iterdir()} == {".index.json", "value.json"}


def test_arrays_with_pickled_objects_are_not_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    place = tmp_path / "values"
    values_message.unpack(message({"value": entry("value.npy", kind="numpy.ndarray")}), place)
    numpy.save(place / "value.npy", numpy.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        results.Results(place)["value"]


def test_a_type_that_is_not_known_here_is_read_by_its_format(tmp_path: Path) -> None:
    values_message.unpack(
        message({"value": entry("value.json", "[1]", kind=["x"])}), tmp_path / "v"
    )
    assert results.Results(tmp_path / "v")["value"] == [1]


def test_a_layout_of_a_pod_may_be_anything(tmp_path: Path) -> None:
    for number, layout in enumerate([[1], "x", {"tuples": 3}, {"tuples": {"all": [], "at": {}}}]):
        given = {**entry("value.json", "[[1]]", "builtins.list"), "layout": layout}
        values_message.unpack(message({"value": given}), tmp_path / str(number))
        assert results.Results(tmp_path / str(number))["value"] == [[1]]


def test_what_a_pod_says_of_names_may_be_anything(tmp_path: Path) -> None:
    pandas, place = pytest.importorskip("pandas"), tmp_path / "values"
    for unnamed in (3, "0", {"0": 1}, [[0]], [None, "x"]):
        told = {**entry("value.parquet", kind="pandas.Series"), "layout": {"unnamed": unnamed}}
        values_message.unpack(message({"value": told}), place)
        table = pandas.DataFrame({"value": [1]})
        table.to_parquet(place / "value.parquet", compression=None)
        found = results.Results(place, of_pod=False)
        assert found["value"].name == "value"


@pytest.mark.parametrize("lost", [3, "xy", ["x"], [1, 2], {"a": "b"}, None])
def test_what_a_pod_says_of_lost_types_may_be_anything(tmp_path: Path, lost: Any) -> None:
    values_message.unpack(message({"value": {**entry("value.json"), "lost": lost}}), tmp_path)
    assert results.Results(tmp_path).note("value") == ""


def test_a_lost_type_of_a_pod_is_visible_and_short(tmp_path: Path) -> None:
    told = {**entry("value.json"), "lost": ["\x1b[31mx" * 99, "dict"]}
    values_message.unpack(message({"value": told}), tmp_path)
    text = results.Results(tmp_path).note("value")
    assert "\x1b" not in text
    assert len(text) < 300


def test_a_value_that_has_not_come_names_each_reason(tmp_path: Path) -> None:
    assert results.Results(tmp_path).fault("value") == (
        "value has not come back: the program has not ended, had no such variable at its end, or "
        "did not end by itself."
    )


def put(place: Path, path: str, content: str | bytes) -> str:
    """Take a file as from a pod; return what the message has of its digest."""
    part = place.parent / "part"
    part.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    part.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    LargeValues(place).put(path, part, digest)
    assert not part.exists()
    return digest[:16]


def large(digest: str, **more: Any) -> dict[str, Any]:
    return {"type": "builtins.list", "file": "value.json", "size": 9000, "digest": digest, **more}


def test_a_large_value_is_the_file_of_its_own_message(tmp_path: Path) -> None:
    """A try that gave less, or that ended before its file had come, has no value of another."""
    place = tmp_path / "values"
    first = put(place, ".ciao-values/value.json", "[1]")
    values_message.unpack(message({"value": large(first)}), place)
    assert results.Results(place)["value"] == [1]
    values_message.unpack(message({"value": large("0" * 16)}), place)
    assert results.Results(place).fault("value") == (
        "value has 9,000 bytes, and its file did not come back: it was not fetched in time."
    )
    values_message.unpack(message({"value": entry("value.json", "[2]")}), place)
    assert results.Results(place)["value"] == [2]
    second = put(place, ".ciao-values/value.json", "[3]")
    assert results.Results(place)["value"] == [2]
    values_message.unpack(message({"value": large(second)}), place)
    assert dict(results.Results(place)) == {"value": [3]}
    assert "value=[3]" in repr(results.Results(place))
    values_message.unpack(message({"value": large("0" * 16)}), place)
    assert dict(results.Results(place)) == {}


def test_a_large_table_is_unpacked_when_it_comes(tmp_path: Path) -> None:
    place, told = tmp_path / "values", {"type": "pandas.DataFrame", "file": "value.parquet"}
    digest = put(place, ".ciao-values/value.parquet", zlib.compress(b"PAR1 and rows"))
    values_message.unpack(message({"value": {**told, "size": 9000, "digest": digest}}), place)
    assert list(results.Results(place)) == ["value"]
    assert (place / "large" / "value.parquet").read_bytes() == b"PAR1 and rows"


def test_a_large_table_that_becomes_too_large_is_refused(tmp_path: Path) -> None:
    place, told = tmp_path / "values", {"type": "pandas.DataFrame", "file": "value.parquet"}
    packed = zlib.compress(bytes((1 << 26) + 1))
    digest = put(place, ".ciao-values/value.parquet", packed)
    values_message.unpack(message({"value": {**told, "size": 9000, "digest": digest}}), place)
    assert results.Results(place).fault("value") == (
        "value has 9,000 bytes, and its file did not come back: the table has more than 67.1 MB, "
        "too many for its file."
    )
    assert {path.name for path in (place / "large").iterdir()} == {".arrived.json"}


def test_a_table_that_is_damaged_is_not_that_of_an_earlier_try(tmp_path: Path) -> None:
    values_message.unpack(message({"value": entry("value.parquet", "PAR1")}), tmp_path)
    assert list(results.Results(tmp_path)) == ["value"]
    values_message.unpack(message({"value": entry("value.parquet", "x")}), tmp_path)
    assert list(results.Results(tmp_path)) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"most": 4194304}, "all values that come back as files have 4.2 MB at most here."),
        ({"errno": 28}, "its file could not be written: No space left on device."),
        ({"digest": "ab"}, "its file did not come back: all files together are too large."),
        ({"digest": 3}, "its file did not come back: all files together are too large."),
        ({}, "write it to a file that %output names, or that is in a %volume."),
        ({"errno": 10**30}, "write it to a file that %output names, or that is in a %volume."),
        ({"most": 10**400}, "write it to a file that %output names, or that is in a %volume."),
    ],
)
def test_a_large_value_that_is_not_here_says_why(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    place = tmp_path / "values"
    LargeValues(place).note_faults({".ciao-values/value.json": "all files together are too large"})
    found = {key: one for key, one in large("").items() if key != "digest"}
    values_message.unpack(message({"value": {**found, **more}}), place)
    assert results.Results(place).fault("value").endswith(words)


def test_the_reason_of_a_pod_is_shown_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "values"
    LargeValues(place).note_faults({".ciao-values/value.json": "a\x1b[2Jb\u202e."})
    values_message.unpack(message({"value": large("ab")}), place)
    assert results.Results(place).fault("value").isprintable()


@pytest.mark.parametrize(
    "path",
    [
        ".ciao-values/value.pkl",
        ".ciao-values/.arrived.json",
        ".ciao-values/a/value.json",
        ".ciao-values/a-b.json",
        ".ciao-values",
    ],
)
def test_files_that_are_no_values_are_removed(tmp_path: Path, path: str) -> None:
    put(tmp_path / "values", path, "{}")
    LargeValues(tmp_path / "values").note_faults({path: "no"})
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (message({"value": large("ab")}), True),
        (message({"value": entry("value.json")}), False),
        (message({"value": large("")}), False),
        ("ciao-result:{", False),
        ("Traceback", False),
    ],
)
def test_a_message_names_values_that_are_files(text: str, names: bool) -> None:
    assert values_message.names_files(text) is names


@pytest.mark.parametrize(
    ("data", "kind", "tuples", "shown"),
    [
        ("[1, 2]", "builtins.tuple", None, "(1, 2)"),
        ("[[1, 2]]", "builtins.list", {"all": {"is": 1}}, "[(1, 2)]"),
        ("[1, 2]", "builtins.list", None, "[1, 2]"),
        ('{"a": 1}', "collections.Counter", None, "Counter({'a': 1})"),
        # A pod may name any type.
        ("1", "builtins.tuple", None, "tuple (1 byte)"),
    ],
)
def test_the_text_of_a_value_is_that_of_what_comes_back(
    tmp_path: Path, data: str, kind: str, tuples: Any, shown: str
) -> None:
    value = {**entry("value.json", data, kind), "layout": {"tuples": tuples} if tuples else {}}
    assert values_message.unpack(message({"value": value}), tmp_path / "values")
    found = results.Results(tmp_path / "values")
    assert repr(found) == f"<results: value={shown}>"
    if not shown.startswith("tuple"):
        assert repr(found["value"]) == shown
