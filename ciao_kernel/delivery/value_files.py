"""The file of one variable: the type of its value determines the format.

A program reads the file back with one call. pandas and numpy are imported only for values of their
types, and for those of the frameworks.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from numbers import Number
from pathlib import PurePath
from typing import Any

from ciao_kernel.errors import SpecError

_SUFFIXES = {
    ("pandas", "DataFrame"): "parquet",
    ("pandas", "Series"): "parquet",
    ("pandas", "Index"): "parquet",
    ("numpy", "ndarray"): "npy",
    ("torch", "Tensor"): "npy",
    ("tensorflow", "EagerTensor"): "npy",
    ("tensorflow", "BaseResourceVariable"): "npy",
    ("numpy", "generic"): "json",
    **{("builtins", one.__name__): "bin" for one in (bytes, bytearray)},
    **{
        ("builtins", one.__name__): "json"
        for one in (str, int, float, bool, type(None), list, tuple, dict)
    },
}
"""File suffix by package and name of a type."""


_CONVERSIONS = {
    "to_pandas": "{}.to_pandas()",
    "toarray": "{}.toarray()",
    "numpy": "{}.numpy()",
    "isoformat": "{}.isoformat()",
    "to_numpy": "{}.to_numpy()",
    "__array__": "numpy.asarray({})",
    "__dataclass_fields__": "dataclasses.asdict({})",
    "keys": "dict({})",
    "toreadonly": "bytes({})",
    "__iter__": "list({})",
}
"""Expressions that make a value storable, by an attribute of its type. The first match counts."""


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


def encode(name: str, value: Any) -> tuple[str, bytes]:
    """Return the suffix and the bytes of a value's file.

    Args:
        name: Name of the variable.
        value: Its value.

    Raises:
        SpecError: No file format supports the value.
    """
    suffix = suffix_of(type(value))
    try:
        if suffix == "parquet":
            return _table(name, value)
        if suffix == "npy":
            return suffix, _npy(value)
        if suffix == "bin":
            return suffix, bytes(value)
        text = json.dumps(value, default=_json_default, ensure_ascii=False)
        _check_keys(value)
        return "json", text.encode()
    except _NotJson as error:
        expression = name if error.value is value else _expression_of(name, value, error.value)
        kind = type(error.value)
        message = (
            f"%input cannot take {name}: no file format supports values of type {kind.__name__}"
        )
        if expression != name:
            message += f" inside another value, such as {expression}"
        raise input_error(
            f"{message}.", _conversion_hint(expression, kind, expression != name), name
        ) from None
    except Exception as error:  # pandas passes on any error of its engines
        raise input_error(
            f"%input cannot take {name}, a {type(value).__name__}: {_error_text(error)}.",
            _table_hint(error) if suffix == "parquet" else "Change the value",
            name,
        ) from error


def _table_hint(error: Exception) -> str:
    """Return the hint for a table that Parquet cannot store."""
    duplicate = "duplicate" in str(error).lower()
    return "Give each column a unique name" if duplicate else "Give each column one type"


def _table(name: str, value: Any) -> tuple[str, bytes]:
    """Return a pandas object as Parquet, with types and index; as CSV without pyarrow."""
    frame, kind = value, type(value)  # ask the type: a value has its columns as attributes
    if hasattr(kind, "levels"):  # a MultiIndex
        names = [str(number) if one is None else one for number, one in enumerate(value.names)]
        frame = value.to_frame(index=False, name=names)
    elif not hasattr(kind, "columns"):  # One column; .squeeze("columns") turns it into a Series.
        index = {} if hasattr(kind, "index") else {"index": False}
        frame = value.to_frame(**index, name=name if value.name is None else value.name)
    try:
        return "parquet", frame.to_parquet(engine="pyarrow")
    except ImportError:
        # A default index is created again when the file is read.
        is_default = frame.index.equals(type(frame)(index=range(len(frame))).index)
        return "csv", frame.to_csv(index=not is_default).encode()


def _npy(value: Any) -> bytes:
    """Return an array or a tensor as a numpy file.

    Raises:
        ValueError: The file would not keep the value unchanged.
    """
    import numpy  # type: ignore[import-not-found,unused-ignore]

    if isinstance(value, numpy.ma.MaskedArray):
        raise ValueError("numpy files cannot store a mask")
    if not isinstance(value, numpy.ndarray):
        # A PyTorch tensor may be on a GPU, or require a gradient.
        array = value.numpy(force=True) if hasattr(value, "detach") else value.numpy()
        value = numpy.asarray(array)
    stream = io.BytesIO()
    numpy.save(stream, value, allow_pickle=False)
    # Types that numpy does not support, such as bfloat16, would be read back as raw bytes.
    empty = io.BytesIO()
    numpy.save(empty, numpy.empty(0, value.dtype), allow_pickle=False)
    empty.seek(0)
    if numpy.load(empty).dtype != value.dtype:
        raise ValueError(f"numpy files cannot store the type {value.dtype}")
    return stream.getvalue()


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
        stack += (inner for inner in container if isinstance(inner, dict | list | tuple))


def _expression_of(name: str, value: Any, target: Any) -> str:
    """Return the expression for a value inside another, such as ``d['w']``."""
    stack, seen = [(name, value)], set()
    while stack:
        expression, one = stack.pop()
        if one is target:
            return expression
        if id(one) in seen or not isinstance(one, dict | list | tuple):
            continue
        seen.add(id(one))
        pairs = one.items() if isinstance(one, dict) else enumerate(one)
        stack += [
            (f"{expression}[{key!r}]", inner) for key, inner in pairs if isinstance(key, str | int)
        ]
    return name


class _NotJson(TypeError):
    """JSON cannot store this value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _json_default(value: Any) -> Any:
    """Return a numpy number as a Python number."""
    numpy = sys.modules.get("numpy")
    # item() reduces a date to nanoseconds, and returns a longdouble as it is.
    if numpy and isinstance(value, numpy.generic) and value.dtype.kind not in "mM":
        number = value.item()
        if not isinstance(number, numpy.generic):
            return number
    raise _NotJson(value)


def _conversion_hint(expression: str, kind: type, is_nested: bool) -> str:
    """Return the beginning of the hint for a value that cannot be stored.

    Args:
        expression: The expression for the value.
        kind: Its type.
        is_nested: True if the value is inside another value.
    """
    suffix = suffix_of(kind)
    if suffix not in ("", "json"):
        return "Make it a separate variable, and name that too"
    template = next(
        (template for attribute, template in _CONVERSIONS.items() if hasattr(kind, attribute)), ""
    )
    if suffix or issubclass(kind, PurePath | Number):
        template = "float({})" if kind.__name__ == "longdouble" else "str({})"
    if not template:
        return "Use a type that pandas, numpy or JSON can store"
    converted = template.format(expression)
    return (
        f"Replace it with {converted}" if is_nested else f"Name a variable that holds {converted}"
    )


def _error_text(error: Exception) -> str:
    """Return the text of an error in one line, without its full stop."""
    parts = [str(error)]
    if len(error.args) > 1 and all(isinstance(one, str) for one in error.args):
        parts = [str(one).strip().rstrip(".") for one in error.args]  # pyarrow's
    text = ". ".join(part.strip().partition("\n")[0] for part in parts)
    return text.rstrip(".") or type(error).__name__


def input_error(message: str, hint: str, name: str) -> SpecError:
    """Return the error for a name; a hint without a full stop gets a general alternative."""
    if not hint.endswith((".", "?")):
        hint += ", or write it to a file yourself and name the file with %files."
    return SpecError(message, hint, directive="input", word=name)
