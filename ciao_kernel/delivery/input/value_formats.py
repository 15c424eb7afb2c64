"""The file format of a value, by its type.

Values go both ways: the kernel writes those of ``%input``, and replicas write those of ``%output``
with this file. It therefore uses the standard library alone until a value needs more, and runs on
Python 3.8. pandas and numpy are imported only for values of their types, and of the frameworks'.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

_SUFFIXES = {
    ("pandas", "DataFrame"): "parquet",
    ("pandas", "Series"): "parquet",
    ("pandas", "Index"): "parquet",
    ("numpy", "ndarray"): "npy",
    ("torch", "Tensor"): "npy",
    ("jaxlib", "ArrayImpl"): "npy",
    ("tensorflow", "EagerTensor"): "npy",
    ("tensorflow", "BaseResourceVariable"): "npy",
    ("numpy", "generic"): "json",
    **{("collections", name): "json" for name in ("Counter", "OrderedDict")},
    **{("builtins", one.__name__): "bin" for one in (bytes, bytearray)},
    **{
        ("builtins", one.__name__): "json"
        for one in (str, int, float, bool, type(None), list, tuple, dict)
    },
}
"""File suffix by package and name of a type."""
_TIMES, _ALWAYS = 32, 1 << 26
"""How many times its size a packed table may have, and bytes that any may have."""


def suffix_of(kind: type) -> str:
    """Return the file suffix for values of a type; "" if they cannot be stored."""
    return next((suffix for _, suffix in _known_bases(kind)), "")


def base_type(kind: type) -> str:
    """Return the known base of a type: ``pandas.Series``."""
    return next((name for name, _ in _known_bases(kind)), "")


def _known_bases(kind: type) -> Iterator[tuple[str, str]]:
    for base in kind.__mro__:
        package = str(base.__module__).partition(".")[0]
        if suffix := _SUFFIXES.get((package, base.__name__)):
            yield f"{package}.{base.__name__}", suffix


def to_bytes(
    name: str, value: Any, *, returned: bool = False, sent: bool = False
) -> tuple[str, bytes]:
    """Return the suffix and the bytes of a value's file.

    Args:
        name: Name of the variable, which becomes that of a column without one.
        value: Its value.
        returned: The value comes back from a replica. A dict of arrays or tensors is stored too,
            such as the weights of a model.
        sent: The value leaves a pod. Tables are not compressed, because the kernel refuses a file
            that may be much larger in memory (parquet_check.py), but packed as a whole.

    Raises:
        NotStorable: No format supports the type of the value, or of a part of it.
        Exception: The format does not support the value; pandas passes on errors of its engines.
    """
    suffix = suffix_of(type(value))
    if suffix == "parquet":
        return _table(name, value, sent)
    if suffix == "npy":
        return suffix, _npy(value)
    if suffix == "bin":
        return suffix, bytes(value)
    if returned and _is_arrays(value):
        return _arrays(value)
    text = json.dumps(value, default=_json_default, ensure_ascii=False)
    _check_keys(value)
    return "json", text.encode()


def described(name: str, value: Any, suffix: str) -> tuple[Any, int, list[int]]:
    """Return what a layout describes (value_layouts.py).

    It is the value, or the table in its file; with CSV the number of index levels there; and which
    columns have a name only in the file.

    Args:
        name: Name of the variable.
        value: Its value.
        suffix: The suffix of its file.
    """
    if suffix not in ("parquet", "csv"):
        return value, 0, []
    kind = type(value)
    names = value.names if hasattr(kind, "levels") else [getattr(value, "name", "")]
    unnamed = [at for at, one in enumerate(names) if one is None and not hasattr(kind, "columns")]
    frame = _frame(name, value)
    return frame, _index_levels(frame) if suffix == "csv" else 0, unnamed


class NotStorable(TypeError):
    """No format stores this value, or this part of one."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def most_unpacked(size: int) -> int:
    """Return how many bytes a packed table may have in the kernel, which does not trust its pod.

    Args:
        size: Bytes of the packed table.
    """
    return max(_TIMES * size, _ALWAYS)


def _table(name: str, value: Any, sent: bool) -> tuple[str, bytes]:
    """Return a pandas object as Parquet, with types and index; as CSV without pyarrow."""
    frame = _frame(name, value)
    options = {"compression": None, "use_dictionary": False} if sent else {}
    try:
        data = frame.to_parquet(engine="pyarrow", **options)
    except ImportError:
        return "csv", frame.to_csv(index=_index_levels(frame) > 0).encode()
    return "parquet", _packed(data) if sent else data


def _packed(table: bytes) -> bytes:
    """Return a table packed; as it is if the kernel would not unpack it."""
    try:
        import zlib
    except ImportError:  # Python was built without it
        return table
    packed = zlib.compress(table)
    return packed if len(table) <= most_unpacked(len(packed)) else table


def _frame(name: str, value: Any) -> Any:
    """Return a pandas object as a data frame."""
    frame, kind = value, type(value)  # ask the type: a value has its columns as attributes
    if hasattr(kind, "levels"):  # a MultiIndex
        names = [str(number) if one is None else one for number, one in enumerate(value.names)]
        frame = value.to_frame(index=False, name=names)
    elif not hasattr(kind, "columns"):  # One column; .squeeze("columns") turns it into a Series.
        index = {} if hasattr(kind, "index") else {"index": False}
        frame = value.to_frame(**index, name=name if value.name is None else value.name)
    return frame


def _index_levels(frame: Any) -> int:
    """Return the levels of an index; 0 if it is created again when a file without it is read."""
    if frame.index.nlevels == 1 and frame.index.name is None:
        return 0 if frame.index.equals(type(frame)(index=range(len(frame))).index) else 1
    return int(frame.index.nlevels)


def _npy(value: Any) -> bytes:
    """Return an array or a tensor as a numpy file.

    Raises:
        ValueError: The file would not keep the value unchanged.
    """
    import numpy  # type: ignore[import-not-found,unused-ignore]

    value = _as_plain_array(value)
    stream = io.BytesIO()
    numpy.save(stream, value, allow_pickle=False)
    _check_type(value.dtype)
    return stream.getvalue()


def _check_type(dtype: Any) -> None:
    """Refuse types that numpy has not by itself, such as bfloat16: the kernel could not read them.

    A numpy file would have them as raw bytes.
    """
    import numpy

    empty = io.BytesIO()
    numpy.save(empty, numpy.empty(0, dtype), allow_pickle=False)
    empty.seek(0)
    if numpy.load(empty).dtype != dtype:
        raise ValueError(f"numpy files cannot store the type {dtype}")


def _is_arrays(value: Any) -> bool:
    """Return whether a value is a dict of arrays; one of numbers in tensors is JSON."""
    return (
        isinstance(value, dict)
        and all(isinstance(key, str) for key in value)
        and all(suffix_of(type(one)) == "npy" for one in value.values())
        and any(len(one.shape) for one in value.values())
    )


def _arrays(value: dict[str, Any]) -> tuple[str, bytes]:
    """Return a dict of arrays as safetensors; as npz without that package, or for its other types.

    ``numpy.savez`` would take some names for its own arguments, and pickle objects.
    """
    import numpy

    # safetensors takes the bytes as they are in memory, and passes over the strides of a view.
    found = {name: numpy.asarray(_as_plain_array(one), order="C") for name, one in value.items()}
    for dtype in {one.dtype for one in found.values()}:
        _check_type(dtype)
    try:
        from safetensors.numpy import (  # type: ignore[import-not-found,unused-ignore]
            save,
        )

        return "safetensors", save(found)
    except Exception:  # of the package, which has no types such as complex numbers
        import zipfile

        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, one in found.items():
                archive.writestr(f"{name}.npy", _npy(one))
        return "npz", stream.getvalue()


def _as_plain_array(value: Any) -> Any:
    """Return an array or a tensor as an array.

    Raises:
        ValueError: It has a mask or another type of array, which files do not keep.
    """
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        raise ValueError("numpy files cannot store a mask")
    if isinstance(value, numpy.ndarray) and type(value) not in (numpy.ndarray, numpy.memmap):
        kind = type(value).__name__
        raise ValueError(f"numpy files store no {kind}; numpy.asarray({kind}) makes an array of it")
    return value if isinstance(value, numpy.ndarray) else _as_array(value)


def _as_array(value: Any) -> Any:
    """Return a tensor of a framework as an array."""
    import numpy

    if hasattr(value, "detach"):  # PyTorch's may be on a GPU, or require a gradient
        value = value.detach().cpu()
        # numpy(force=True) does the same from 1.13 on, and these came with 1.10.
        for method in ("resolve_conj", "resolve_neg"):
            value = getattr(value, method)() if hasattr(value, method) else value
    return numpy.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _check_keys(value: Any) -> None:
    """Refuse keys that JSON would convert to text: the program would not find them."""
    stack: list[Any] = [(value,)]  # no value contains itself: json has checked
    while stack:
        container = stack.pop()
        if isinstance(container, dict):
            for key in container:
                if not isinstance(key, str):
                    raise ValueError(f"JSON allows only text as keys, not {type(key).__name__}")
            container = container.values()
        stack += (inner for inner in container if isinstance(inner, (dict, list, tuple)))


def _json_default(value: Any) -> Any:
    """Return a number of numpy or of a framework as a Python number."""
    numpy = sys.modules.get("numpy")
    if numpy and suffix_of(type(value)) == "npy" and getattr(value, "ndim", 1) == 0:
        value = _as_array(value)[()]  # a loss, such as tensor(0.25)
    # item() reduces a date to nanoseconds, and returns a longdouble as it is.
    if numpy and isinstance(value, numpy.generic) and value.dtype.kind not in "mM":
        number = value.item()
        if not isinstance(number, numpy.generic):
            return number
    raise NotStorable(value)
