"""Variables of the notebook as files for a job: what ``%input`` names.

The session calls :func:`deliver` before anything exists. The type of a value chooses the form of
its file, so that the program reads it back with one call. pandas and numpy are never imported
here: where a value is one of theirs, the user has imported them.
"""

from __future__ import annotations

import difflib
import io
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ciao_kernel.errors import SpecError
from ciao_kernel.model import Source, SourceFile

FOLDER = "input"
"""The folder beside the program that gets the files."""


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
        if path in files:
            raise _wrong(f"{path} is one of %files too.", "Rename the variable or the file.", name)
        files[path] = SourceFile(path, data, size=len(data))
    return replace(source, files=tuple(files[path] for path in sorted(files)))


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


def _stored(name: str, value: Any) -> tuple[str, bytes]:
    """A value as the ending and the bytes of a file."""
    pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
    try:
        if pandas and isinstance(value, pandas.DataFrame):
            return _table(value)
        if numpy and isinstance(value, numpy.ma.MaskedArray):
            raise ValueError("numpy's files do not keep a mask")
        if numpy and isinstance(value, numpy.ndarray):
            stream = io.BytesIO()
            numpy.save(stream, value, allow_pickle=False)
            return "npy", stream.getvalue()
        text = json.dumps(value, default=_plain, ensure_ascii=False)
        _check_keys(value)
        return "json", text.encode()
    except _NoJson as error:
        raise _wrong(
            f"%input cannot take {name}: no file holds a value of type {error}.",
            "It takes pandas DataFrames, numpy arrays, and what JSON holds. Write others to a "
            "file of your own, and name that with %files.",
            name,
        ) from None
    except Exception as error:  # pandas lets through whatever its engines raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise _wrong(
            f"%input cannot take {name}, a {type(value).__name__}: {reason.rstrip('.')}.",
            "Change it, or write it to a file of your own and name that with %files.",
            name,
        ) from error


def _table(frame: Any) -> tuple[str, bytes]:
    """A DataFrame as Parquet, with its types and its index; as CSV where pyarrow is missing."""
    try:
        return "parquet", frame.to_parquet(engine="pyarrow")
    except ImportError:
        # An index that only counts comes back by itself.
        counts = frame.index.equals(type(frame)(index=range(len(frame))).index)
        return "csv", frame.to_csv(index=not counts).encode()


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


class _NoJson(TypeError):
    """JSON knows no such type; the text is its name."""


def _plain(value: Any) -> Any:
    """A numpy number as Python's own."""
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, numpy.generic):
        return value.item()
    raise _NoJson(type(value).__name__)


def _wrong(message: str, hint: str, name: str) -> SpecError:
    return SpecError(message, hint, directive="input", word=name)
