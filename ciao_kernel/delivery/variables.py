"""Variables of the notebook as files for a job: what ``%input`` names.

The session calls :func:`deliver` before anything exists; completion asks :func:`travelling`. The
type of a value chooses the form of its file, so that the program reads it back with one call.
Of pandas, numpy and frameworks nothing is imported before a value is one of theirs.
"""

from __future__ import annotations

import difflib
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from numbers import Number
from pathlib import PurePath
from typing import Any

from ciao_kernel.errors import SpecError
from ciao_kernel.model import Source, SourceFile

FOLDER = "input"
"""The folder beside the program that gets the files."""

_FORMS = {
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
"""A type's package and name, and the ending of its file."""

_WAYS = {
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
"""What a type has, and what makes of its values some that travel. The first that fits counts."""


def deliver(source: Source, names: Iterable[str], variables: Mapping[str, Any] | None) -> Source:
    """Return the source with a file for each variable among its files.

    Args:
        source: What travels without them.
        names: What ``%input`` names.
        variables: Those of the notebook's cells; None where there is no notebook.

    Raises:
        SpecError: There is no such variable, or no form for its type.
    """
    files = {file.path: file for file in source.files}
    for name in dict.fromkeys(names):
        ending, data = _stored(name, _value(name, variables))
        path = f"{FOLDER}/{name}.{ending}"
        if FOLDER in files:
            raise _wrong(
                "input is one of %files, and %input makes a folder of that name.",
                "Rename the file.",
                name,
            )
        if path in files:
            raise _wrong(f"{path} is one of %files too.", "Rename the variable or the file.", name)
        files[path] = SourceFile(path, data, size=len(data))
    return replace(source, files=tuple(files[path] for path in sorted(files)))


def travelling(variables: Mapping[str, Any]) -> Iterator[str]:
    """Names of variables whose types have a form. Their values are asked nothing."""
    for name, value in list(variables.items()):
        if _form(type(value)):
            yield name


def _value(name: str, variables: Mapping[str, Any] | None) -> Any:
    if variables is None:
        raise _wrong(
            "%input names variables of a notebook, and here is none.",
            "Store them in files, and name those with %files.",
            name,
        )
    if name in variables:
        return variables[name]
    known = [known for known in variables if not known.startswith("_")]
    near = difflib.get_close_matches(name, known, n=1)
    raise _wrong(
        f"%input names {name}, and there is no variable of that name.",
        f"Did you mean {near[0]}?" if near else "Run the cell that makes it first.",
        name,
    )


def _form(kind: type) -> str:
    """The ending of the files that hold values of a type; empty where there is none."""
    for base in kind.__mro__:
        package = str(base.__module__).partition(".")[0]
        if form := _FORMS.get((package, base.__name__)):
            return form
    return ""


def _stored(name: str, value: Any) -> tuple[str, bytes]:
    """A value as the ending and the bytes of a file."""
    form = _form(type(value))
    try:
        if form == "parquet":
            return _table(name, value)
        if form == "npy":
            return form, _array(value)
        if form == "bin":
            return form, bytes(value)
        text = json.dumps(value, default=_plain, ensure_ascii=False)
        _check_keys(value)
        return "json", text.encode()
    except _NoJson as error:
        place = name if error.value is value else _place(name, value, error.value)
        kind = type(error.value)
        message = f"%input cannot take {name}: no file holds a value of type {kind.__name__}"
        if place != name:
            message += f" inside another, and {place} is one"
        raise _wrong(f"{message}.", _instead(place, kind, place != name), name) from None
    except Exception as error:  # pandas lets through whatever its engines raise
        raise _wrong(
            f"%input cannot take {name}, a {type(value).__name__}: {_reason(error)}.",
            _mended(error) if form == "parquet" else "Change it",
            name,
        ) from error


def _mended(error: Exception) -> str:
    """What helps a table that no Parquet holds."""
    twice = "duplicate" in str(error).lower()
    return "Give each column a name of its own" if twice else "Give each column one type"


def _table(name: str, value: Any) -> tuple[str, bytes]:
    """Something of pandas as Parquet, with types and index; as CSV where pyarrow is missing."""
    frame, kind = value, type(value)  # of its type, for a value has its columns as attributes
    if hasattr(kind, "levels"):  # a MultiIndex
        names = [str(at) if one is None else one for at, one in enumerate(value.names)]
        frame = value.to_frame(index=False, name=names)
    elif not hasattr(kind, "columns"):  # One column, of which .squeeze("columns") makes a Series.
        index = {} if hasattr(kind, "index") else {"index": False}
        frame = value.to_frame(**index, name=name if value.name is None else value.name)
    try:
        return "parquet", frame.to_parquet(engine="pyarrow")
    except ImportError:
        # An index that only counts comes back by itself.
        counts = frame.index.equals(type(frame)(index=range(len(frame))).index)
        return "csv", frame.to_csv(index=not counts).encode()


def _array(value: Any) -> bytes:
    """An array or a tensor as numpy's file.

    Raises:
        ValueError: The file would hold something else.
    """
    import numpy  # type: ignore[import-not-found,unused-ignore]

    if isinstance(value, numpy.ma.MaskedArray):
        raise ValueError("numpy's files do not keep a mask")
    if not isinstance(value, numpy.ndarray):
        # PyTorch's may lie on a GPU, or belong to a gradient.
        own = value.numpy(force=True) if hasattr(value, "detach") else value.numpy()
        value = numpy.asarray(own)
    stream = io.BytesIO()
    numpy.save(stream, value, allow_pickle=False)
    # Types that numpy does not know, such as bfloat16, come back as bytes without a meaning.
    empty = io.BytesIO()
    numpy.save(empty, numpy.empty(0, value.dtype), allow_pickle=False)
    empty.seek(0)
    if numpy.load(empty).dtype != value.dtype:
        raise ValueError(f"numpy's files do not keep the type {value.dtype}")
    return stream.getvalue()


def _check_keys(value: Any) -> None:
    """Refuse keys that JSON would make text of: the program would look for them in vain."""
    rest: list[Any] = [(value,)]  # nothing holds itself: json has looked
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str):
                    raise ValueError(f"JSON has only text as keys, not {type(key).__name__}")
            one = one.values()
        rest += (inner for inner in one if isinstance(inner, dict | list | tuple))


def _place(name: str, value: Any, sought: Any) -> str:
    """The expression for a value inside another, such as ``d['w']``."""
    rest, seen = [(name, value)], set()
    while rest:
        place, one = rest.pop()
        if one is sought:
            return place
        if id(one) in seen or not isinstance(one, dict | list | tuple):
            continue
        seen.add(id(one))
        pairs = one.items() if isinstance(one, dict) else enumerate(one)
        rest += [(f"{place}[{key!r}]", inner) for key, inner in pairs if isinstance(key, str | int)]
    return name


class _NoJson(TypeError):
    """JSON does not hold this value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _plain(value: Any) -> Any:
    """A numpy number as Python's own."""
    numpy = sys.modules.get("numpy")
    # Of a date there would be only nanoseconds, and of a longdouble itself.
    if numpy and isinstance(value, numpy.generic) and value.dtype.kind not in "mM":
        own = value.item()
        if not isinstance(own, numpy.generic):
            return own
    raise _NoJson(value)


def _instead(place: str, kind: type, within: bool) -> str:
    """The beginning of the hint for a value without a form.

    Args:
        place: The expression for it.
        kind: Its type.
        within: Whether it is inside another value.
    """
    form = _form(kind)
    if form not in ("", "json"):
        return "Make it a variable of its own, and name that too"
    way = next((way for has, way in _WAYS.items() if hasattr(kind, has)), "")
    if form or issubclass(kind, PurePath | Number):
        way = "float({})" if kind.__name__ == "longdouble" else "str({})"
    if not way:
        return "Take what pandas, numpy or JSON hold"
    said = way.format(place)
    return f"Put {said} in its place" if within else f"Name a variable that holds {said}"


def _reason(error: Exception) -> str:
    """An error's text in one line, without its full stop."""
    parts = [str(error)]
    if len(error.args) > 1 and all(isinstance(one, str) for one in error.args):
        parts = [str(one).strip().rstrip(".") for one in error.args]  # pyarrow's
    text = ". ".join(part.strip().partition("\n")[0] for part in parts)
    return text.rstrip(".") or type(error).__name__


def _wrong(message: str, hint: str, name: str) -> SpecError:
    """An error with its line; a hint without a full stop gets the way that is always open."""
    if not hint.endswith((".", "?")):
        hint += ", or write it to a file of your own and name that with %files."
    return SpecError(message, hint, directive="input", word=name)
