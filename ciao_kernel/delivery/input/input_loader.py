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
STORED: dict[str, tuple[str, str]] = {}
"""The file and the type of each name; ``ciao_input`` fills it in."""


def load(name: str) -> Any:
    """Return a value with the type that it had in the notebook.

    Raises:
        AttributeError: ``%input`` does not name it.
    """
    if name not in STORED:
        raise AttributeError(f"%input does not name {name}")
    file, kind = STORED[name]
    return read(_FOLDER / file, kind)


def read(path: Path, kind: str) -> Any:
    """Return the value of a file; the kernel reads those of ``%output`` with it.

    Args:
        path: The file; its suffix is its format.
        kind: The type to return, such as ``pandas.Series`` (value_formats.py, ``base_type``).
    """
    if path.suffix == ".json":
        value = json.loads(path.read_text(encoding="utf-8"))
        return tuple(value) if kind == "builtins.tuple" else value
    if path.suffix == ".bin":
        data = path.read_bytes()
        return bytearray(data) if kind == "builtins.bytearray" else data
    if path.suffix in (".npz", ".safetensors"):
        return _arrays(path)
    return _array(path, kind) if path.suffix == ".npy" else _table(path, kind)


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


def _table(path: Path, kind: str) -> Any:
    pandas = import_module("pandas")
    if path.suffix == ".parquet":
        frame = pandas.read_parquet(path)
    else:
        with path.open(encoding="utf-8") as stream:
            indexed = stream.read(1) == ","  # the heading of an index without a name
        frame = pandas.read_csv(path, index_col=0 if indexed else None)
    if kind == "pandas.Index":
        several = frame.shape[1] > 1
        return pandas.MultiIndex.from_frame(frame) if several else pandas.Index(frame.iloc[:, 0])
    return frame.iloc[:, 0] if kind == "pandas.Series" else frame
