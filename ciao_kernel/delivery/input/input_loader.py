"""Reads the values that ``%input`` stores, for ``ciao_input`` in the program of a job.

This text runs in replicas, whose Python may be older than the kernel's and has no ciao: it uses the
standard library alone until a value needs more. It has a module of its own (:mod:`.variables`): a
variable of the user may have any name.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).absolute().parent / "input"
STORED: dict[str, Any] = {}
"""The file, the type and the layout of each name; ``ciao_input`` fills it in."""


def load(name: str) -> Any:
    """Return a value with the type that it had in the notebook.

    Raises:
        AttributeError: ``%input`` does not name it.
    """
    if name not in STORED:
        raise AttributeError(f"%input does not name {name}")
    file, kind, layout = STORED[name]
    return read(_FOLDER / file, kind, layout)


def read(path: Path, kind: str, layout: dict[str, Any]) -> Any:
    """Return the value of a file; the kernel reads those of ``%output`` with it.

    Args:
        path: The file; its suffix is its format.
        kind: The type to return, such as ``pandas.Series`` (value_formats.py, ``base_type``).
        layout: What the file does not tell (value_formats.py, ``layout``).
    """
    if path.suffix == ".json":
        value = _with_tuples(json.loads(path.read_text(encoding="utf-8")), layout.get("tuples"))
        if isinstance(value, dict) and kind in ("collections.Counter", "collections.OrderedDict"):
            return getattr(import_module("collections"), kind[len("collections.") :])(value)
        return tuple(value) if kind == "builtins.tuple" else value
    if path.suffix == ".bin":
        data = path.read_bytes()
        return bytearray(data) if kind == "builtins.bytearray" else data
    if path.suffix in (".npz", ".safetensors"):
        return _arrays(path)
    return _array(path, kind) if path.suffix == ".npy" else _table(path, kind, layout)


def _with_tuples(value: Any, places: Any) -> Any:
    """Return a value of JSON with the tuples that it had."""
    if not isinstance(places, dict) or not isinstance(value, (dict, list)):
        return value
    every, some = places.get("all"), places.get("at") or {}
    if every or some:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in list(pairs):
            value[key] = _with_tuples(one, some.get(str(key), every) if some else every)
    return tuple(value) if places.get("is") else value


def _array(path: Path, kind: str) -> Any:
    value = import_module("numpy").load(path)
    if kind == "torch.Tensor":
        return import_module("torch").from_numpy(value)
    if kind == "jaxlib.ArrayImpl":
        return import_module("jax.numpy").asarray(value)
    if kind.startswith("tensorflow."):
        tensorflow = import_module("tensorflow")
        variable = kind.endswith("Variable")
        return tensorflow.Variable(value) if variable else tensorflow.convert_to_tensor(value)
    return value


def _arrays(path: Path) -> dict[str, Any]:
    """Return a dict of arrays; of a compressed file nobody knows the size before it is read."""
    if path.suffix == ".safetensors":
        found: dict[str, Any] = import_module("safetensors.numpy").load_file(path)
        return found
    with import_module("zipfile").ZipFile(path) as archive:
        if any(one.compress_type for one in archive.infolist()):
            raise ValueError(f"{path.name} is compressed")
    with import_module("numpy").load(path) as arrays:
        return dict(arrays)


def _table(path: Path, kind: str, layout: dict[str, Any]) -> Any:
    pandas = import_module("pandas")
    frame = pandas.read_parquet(path) if path.suffix == ".parquet" else _csv(path, layout)
    if kind not in ("pandas.Index", "pandas.Series"):
        return frame
    given = layout.get("unnamed")
    unnamed = given if isinstance(given, list) else []
    column = frame.iloc[:, 0].rename(None) if 0 in unnamed else frame.iloc[:, 0]
    if kind == "pandas.Series":
        return column
    if frame.shape[1] == 1:
        return pandas.Index(column)
    names = [None if at in unnamed else name for at, name in enumerate(frame.columns)]
    return pandas.MultiIndex.from_frame(frame, names=names)


def _csv(path: Path, layout: dict[str, Any]) -> Any:
    """Return a table with its index and types; pandas would take some text for numbers."""
    pandas, csv = import_module("pandas"), import_module("csv")
    types, missing, levels = layout["types"], layout["missing"], layout["levels"]
    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    exact = {} if version >= (3, 1) else {"float_precision": "round_trip"}  # then the default
    with path.open(encoding="utf-8", newline="") as stream:
        heading = next(csv.reader(stream))
        places = range(len(heading))
        words = [types] * len(heading) if isinstance(types, str) else types
        frame = pandas.read_csv(
            stream,
            header=None,
            names=list(places),
            index_col=False,
            dtype={at: _read_as(words[at]) for at in places},
            keep_default_na=False,
            na_values={at: [""] for at in (places if missing is True else missing)},
            skip_blank_lines=False,
            **exact,
        )
    for at in places:
        if words[at].startswith(("datetime", "timedelta")):
            frame[at] = _times(frame[at], words[at])
        elif words[at] == "text or None":
            frame[at] = frame[at].where(frame[at].notna(), None)
    if levels:
        frame = frame.set_index(list(range(levels)))
        frame.index.names = layout["names"]
    frame.columns = pandas.Index(heading[levels:], name=layout["heading"])
    if layout["labels"]:
        frame.columns = frame.columns.astype(layout["labels"])
    return frame


def _read_as(word: str) -> Any:
    """Return the type by which pandas reads a column; times are text at first."""
    if word in ("text", "text or None") or word.startswith(("datetime", "timedelta")):
        return object
    return word[len("text ") :] if word.startswith("text ") else word


def _times(column: Any, word: str) -> Any:
    pandas = import_module("pandas")
    if word.startswith("timedelta"):
        return pandas.to_timedelta(column).astype(word)
    found, zone = pandas.to_datetime(column, utc=True, format="ISO8601"), word.partition(", ")[2]
    return (found if zone else found.dt.tz_localize(None)).astype(word)
