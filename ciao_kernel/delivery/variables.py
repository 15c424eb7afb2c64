"""Write the notebook's variables that ``%input`` names to files for a job.

The session calls :func:`deliver` before it creates anything; completion calls
:func:`storable_names`. Functions and classes travel as source in a module, ``ciao_input``, which
also reads the files.
The type of a value determines its file format, so that the program reads it back with one call.
pandas, numpy and the frameworks are imported only for values of their types.
"""

from __future__ import annotations

import difflib
import inspect
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from numbers import Number
from pathlib import PurePath
from typing import Any

from ciao_kernel.delivery.definitions import Definitions, collect, is_code
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Source, SourceFile

FOLDER = "input"
"""Folder of the files, beside the program."""
MODULE = "ciao_input"
"""Module that has the variables by their names, beside the program."""

_OF_IPYTHON = ("In", "Out")
"""Lists of cells and results; names that begin with ``_`` are IPython's or private."""
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
"""File suffix by package and name of a type."""

_SECRET = re.compile(r"(?i)passw|pwd|token(?!iz)|secret|credential|api_?key")
"""Names of values that are sent only if the user names them."""

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


def module_code(names: Iterable[str], variables: Mapping[str, Any] | None) -> str:
    """Return the source of the functions and classes among some variables, "" if there are none.

    Args:
        names: The names in ``%input``.
        variables: The variables of the notebook; None if there is no notebook.

    Raises:
        SpecError: There is no variable of that name, or code cannot be delivered.
    """
    code = [name for name in dict.fromkeys(names) if is_code(_value(name, variables))]
    return collect(code, variables).code if code and variables else ""


def deliver(source: Source, names: Iterable[str], variables: Mapping[str, Any] | None) -> Source:
    """Return the source with an additional file for each variable.

    If the program imports ``ciao_input``, or a name is a function or a class, that module is
    another file.

    Args:
        source: The program and its files, without the variables.
        names: The names in ``%input``.
        variables: The variables of the notebook; None if there is no notebook.

    Raises:
        SpecError: There is no variable of that name, no file format for its type, or no source.
    """
    files = {file.path: file for file in source.files}
    wanted = {name: _value(name, variables) for name in names}
    code = [name for name, value in wanted.items() if is_code(value)]
    definitions = collect(code, variables or {})
    stored: dict[str, tuple[str, str]] = {}
    needed = {name: by for name, by in definitions.values.items() if name not in wanted}
    for name in [*wanted, *needed]:
        if name in code:
            continue
        value = _value(name, variables)
        form = _stored_for(needed[name], name, value) if name in needed else _stored(name, value)
        ending, data = form
        stored[name] = f"{name}.{ending}", _kind(type(value))
        _add(files, f"{FOLDER}/{name}.{ending}", data, name)
    if code or MODULE in source.imports:
        path = f"{MODULE}.py"
        if any(file.path == path for file in source.modules):
            first = next(iter(wanted))
            raise _wrong(
                f"there is a {path} beside the notebook, but %input creates a module of that name.",
                "Rename the file.",
                first,
            )
        text = _module(stored, definitions)
        _add(files, path, text.encode(), next(iter(wanted)))
    return replace(source, files=tuple(files[path] for path in sorted(files)))


def _stored_for(asked: str, name: str, value: Any) -> tuple[str, bytes]:
    """Return suffix and bytes of a value that a function uses, which the user has not named."""
    if _SECRET.search(name):
        raise _wrong(
            f"%input cannot take {asked}: it uses {name}, which may be a password.",
            f"On a cluster use %envsecret for passwords. To send {name} anyway, name it too: "
            f"%input={asked} {name}.",
            asked,
        )
    try:
        return _stored(name, value)
    except SpecError as error:
        text = error.message.removeprefix(f"%input cannot take {name}")
        raise _wrong(
            f"%input cannot take {asked}: it uses {name}{text}", error.hint, asked
        ) from None


def _add(files: dict[str, SourceFile], path: str, data: bytes, name: str) -> None:
    if FOLDER in files:
        raise _wrong(
            "%files includes a file named input, but %input creates a folder of that name.",
            "Rename the file.",
            name,
        )
    if path in files:
        raise _wrong(f"%files already includes {path}.", "Rename the variable or the file.", name)
    files[path] = SourceFile(path, data, size=len(data))


def _module(stored: Mapping[str, tuple[str, str]], definitions: Definitions) -> str:
    """Return the module that a program imports as ``ciao_input``."""
    from ciao_kernel.delivery import input_loader

    # Functions find global names only if they are really there.
    eager = [f"{name} = _load({name!r})" for name in definitions.values]
    lines = ["", "", f"_STORED.update({dict(stored)!r})", *eager, "", definitions.code]
    return inspect.getsource(input_loader) + "\n".join(lines)


def storable_names(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the user's variables whose types can be stored; no value is inspected."""
    for name, value in list(variables.items()):
        if name in _OF_IPYTHON or name.startswith("_"):
            continue
        if _form(type(value)) or (is_code(value) and value.__module__ == "__main__"):
            yield name


def _value(name: str, variables: Mapping[str, Any] | None) -> Any:
    if variables is None:
        raise _wrong(
            "%input names variables of a notebook, but there is no notebook here.",
            "Store them in files, and name the files with %files.",
            name,
        )
    if name in variables:
        return variables[name]
    near = difflib.get_close_matches(name, storable_names(variables), n=1)
    raise _wrong(
        f"%input names {name}, but there is no variable of that name.",
        f"Did you mean {near[0]}?" if near else "First run the cell that creates it.",
        name,
    )


def _form(kind: type) -> str:
    """Return the file suffix for values of a type; "" if they cannot be stored."""
    return next((form for _, form in _forms(kind)), "")


def _kind(kind: type) -> str:
    """Return the known base of a type: ``pandas.Series``."""
    return next((name for name, _ in _forms(kind)), "")


def _forms(kind: type) -> Iterator[tuple[str, str]]:
    for base in kind.__mro__:
        package = str(base.__module__).partition(".")[0]
        if form := _FORMS.get((package, base.__name__)):
            yield f"{package}.{base.__name__}", form


def _stored(name: str, value: Any) -> tuple[str, bytes]:
    """Return the suffix and the bytes of a value's file."""
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
        message = (
            f"%input cannot take {name}: no file format supports values of type {kind.__name__}"
        )
        if place != name:
            message += f" inside another value, such as {place}"
        raise _wrong(f"{message}.", _instead(place, kind, place != name), name) from None
    except Exception as error:  # pandas passes on any error of its engines
        raise _wrong(
            f"%input cannot take {name}, a {type(value).__name__}: {_reason(error)}.",
            _mended(error) if form == "parquet" else "Change the value",
            name,
        ) from error


def _mended(error: Exception) -> str:
    """Return the hint for a table that Parquet cannot store."""
    twice = "duplicate" in str(error).lower()
    return "Give each column a unique name" if twice else "Give each column one type"


def _table(name: str, value: Any) -> tuple[str, bytes]:
    """Return a pandas object as Parquet, with types and index; as CSV without pyarrow."""
    frame, kind = value, type(value)  # ask the type: a value has its columns as attributes
    if hasattr(kind, "levels"):  # a MultiIndex
        names = [str(at) if one is None else one for at, one in enumerate(value.names)]
        frame = value.to_frame(index=False, name=names)
    elif not hasattr(kind, "columns"):  # One column; .squeeze("columns") turns it into a Series.
        index = {} if hasattr(kind, "index") else {"index": False}
        frame = value.to_frame(**index, name=name if value.name is None else value.name)
    try:
        return "parquet", frame.to_parquet(engine="pyarrow")
    except ImportError:
        # A default index is created again when the file is read.
        counts = frame.index.equals(type(frame)(index=range(len(frame))).index)
        return "csv", frame.to_csv(index=not counts).encode()


def _array(value: Any) -> bytes:
    """Return an array or a tensor as a numpy file.

    Raises:
        ValueError: The file would not keep the value unchanged.
    """
    import numpy  # type: ignore[import-not-found,unused-ignore]

    if isinstance(value, numpy.ma.MaskedArray):
        raise ValueError("numpy files cannot store a mask")
    if not isinstance(value, numpy.ndarray):
        # A PyTorch tensor may be on a GPU, or require a gradient.
        own = value.numpy(force=True) if hasattr(value, "detach") else value.numpy()
        value = numpy.asarray(own)
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
    rest: list[Any] = [(value,)]  # no value contains itself: json has checked
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            for key in one:
                if not isinstance(key, str):
                    raise ValueError(f"JSON allows only text as keys, not {type(key).__name__}")
            one = one.values()
        rest += (inner for inner in one if isinstance(inner, dict | list | tuple))


def _place(name: str, value: Any, sought: Any) -> str:
    """Return the expression for a value inside another, such as ``d['w']``."""
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
    """JSON cannot store this value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _plain(value: Any) -> Any:
    """Return a numpy number as a Python number."""
    numpy = sys.modules.get("numpy")
    # item() reduces a date to nanoseconds, and returns a longdouble as it is.
    if numpy and isinstance(value, numpy.generic) and value.dtype.kind not in "mM":
        own = value.item()
        if not isinstance(own, numpy.generic):
            return own
    raise _NoJson(value)


def _instead(place: str, kind: type, within: bool) -> str:
    """Return the beginning of the hint for a value that cannot be stored.

    Args:
        place: The expression for the value.
        kind: Its type.
        within: True if the value is inside another value.
    """
    form = _form(kind)
    if form not in ("", "json"):
        return "Make it a separate variable, and name that too"
    way = next((way for has, way in _CONVERSIONS.items() if hasattr(kind, has)), "")
    if form or issubclass(kind, PurePath | Number):
        way = "float({})" if kind.__name__ == "longdouble" else "str({})"
    if not way:
        return "Use a type that pandas, numpy or JSON can store"
    said = way.format(place)
    return f"Replace it with {said}" if within else f"Name a variable that holds {said}"


def _reason(error: Exception) -> str:
    """Return the text of an error in one line, without its full stop."""
    parts = [str(error)]
    if len(error.args) > 1 and all(isinstance(one, str) for one in error.args):
        parts = [str(one).strip().rstrip(".") for one in error.args]  # pyarrow's
    text = ". ".join(part.strip().partition("\n")[0] for part in parts)
    return text.rstrip(".") or type(error).__name__


def _wrong(message: str, hint: str, name: str) -> SpecError:
    """Return the error for a name; a hint without a full stop gets a general alternative."""
    if not hint.endswith((".", "?")):
        hint += ", or write it to a file yourself and name the file with %files."
    return SpecError(message, hint, directive="input", word=name)
