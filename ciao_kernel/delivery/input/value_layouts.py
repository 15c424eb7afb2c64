"""Layout of a value: all that its file does not tell, so that the same value is read again.

JSON has no tuples, tables name each column, and CSV, their format without pyarrow, has neither
types nor an index. The layout travels beside the type of a value, for its reader (input_loader.py).
:func:`lost_part` and :func:`plain_type` tell what is not read again, with any layout.
As :mod:`.value_formats` this file is in replicas too: standard library, from Python 3.8 on.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

_UNREAD = frozenset("\0\ufeff")
_QUOTED = frozenset(',"\n')
"""A text with one of these is between quotes in a CSV file, which also keep ``\\r``."""
_CONTAINERS = (dict, list, tuple)
_TYPES = (str, int, float, list, tuple, dict, bytes, bytearray)
_ALIKE = frozenset({"builtins", "numpy", "pandas", "torch", "tensorflow", "IPython"})
"""Packages whose own forms of these types programs use like the plain ones: ``torch.Size``, or
``files = !ls``, a list of IPython."""
_PLAIN: dict[str, Any] = {}
_TUPLE: dict[str, Any] = {"is": 1}
"""Forms of containers without tuples inside."""
_TRIED = 3
"""Forms that are tried as that of all parts."""


def layout(suffix: str, value: Any, levels: int, unnamed: list[int]) -> dict[str, Any]:
    """Return what the file of a value does not tell; it can be written as JSON.

    Args:
        suffix: The suffix of the file.
        value: The value, or the data frame in its file.
        levels: The number of index levels in that file.
        unnamed: Columns that have a name only there.

    Raises:
        LostInCsv: The file and the layout would not keep the table unchanged.
    """
    if suffix in ("csv", "parquet"):
        found = _csv_layout(value, levels) if suffix == "csv" else {}
        return {**found, "unnamed": unnamed} if unnamed else found
    if suffix == "json" and isinstance(value, _CONTAINERS):
        # The type of the value itself is known.
        tuples = {key: one for key, one in _form(value, {}).items() if key != "is"}
        return {"tuples": tuples} if tuples else {}
    return {}


def lost_part(suffix: str, value: Any) -> Any:
    """Return a part of a value that its file turns into a plain type; None if there is none.

    ``%input`` refuses such a value. ``%output`` says it, for the program has ended.

    Args:
        suffix: The suffix of the file.
        value: The value.
    """
    if suffix not in ("json", "bin"):
        return None
    is_kept = type(value) in (Counter, OrderedDict)  # base_type tells it
    stack: list[Any] = [value.values() if is_kept else (value,)]
    while stack:
        inner = stack.pop()
        if any(plain_type(kind) for kind in set(map(type, inner))):
            return next(one for one in inner if plain_type(type(one)))
        containers = (one for one in inner if isinstance(one, _CONTAINERS))
        stack += (one.values() if isinstance(one, dict) else one for one in containers)
    return None


def plain_type(kind: type) -> str:
    """Return the plain type that a value of a type becomes in a file; "" if it is used alike."""
    if kind is OrderedDict or str(kind.__module__).partition(".")[0] in _ALIKE:
        return ""  # a dict is in order too
    return next((one.__name__ for one in kind.__mro__ if one in _TYPES), "")


class LostInCsv(ValueError):
    """A CSV file would not keep a table unchanged; Parquet does, with pyarrow."""

    def __init__(self, what: str) -> None:
        super().__init__(f"without pyarrow it would be a CSV file, which does not keep {what}")


def _csv_layout(frame: Any, levels: int) -> dict[str, Any]:
    """Return the levels and the types of a table."""
    labels = frame.columns
    if labels.nlevels > 1 or not labels.is_unique or not len(labels):
        raise LostInCsv("columns of several levels, columns of one name, or a table without any")
    is_text = all(isinstance(one, str) for one in labels)
    _check_line_ends(labels)
    if not is_text and labels.dtype.kind not in "iu":
        raise LostInCsv("names of columns that are not text")
    names = list(frame.index.names[:levels])
    if not all(one is None or isinstance(one, (str, int)) for one in (*names, labels.name)):
        raise LostInCsv("names of index levels that are not text")
    _check_line_ends(names)
    found = [frame.index.get_level_values(number).to_series() for number in range(levels)]
    found += [frame.iloc[:, number] for number in range(len(labels))]
    types = [_csv_type(one) for one in found]
    missing = [
        at for at, one in enumerate(found) if not types[at].startswith("text") or one.isna().any()
    ]
    return {
        "levels": levels,
        "names": names,
        # One word for all columns: what a pod says of its values has little room.
        "types": types if len(set(types)) > 1 else types[0],
        "missing": missing if len(missing) < len(found) else True,
        "labels": "" if is_text else str(labels.dtype),
        "heading": labels.name,
    }


def _check_line_ends(texts: Any) -> None:
    """Refuse text with a carriage return that would end a line, for it is not between quotes."""
    if any(isinstance(one, str) and "\r" in one and _QUOTED.isdisjoint(one) for one in texts):
        raise LostInCsv("a carriage return in text")


def _csv_type(column: Any) -> str:
    """Return the type of a column, as it is read from a CSV file."""
    dtype = column.dtype
    name, kind = str(dtype), getattr(dtype, "kind", "O")
    if name == "category":
        words = list(dtype.categories)
        # They are found again in the text, in alphabetical order.
        found = sorted({one for one in column.dropna() if isinstance(one, str)})
        if words != found or dtype.ordered or "" in words:
            raise LostInCsv(f"the categories of {column.name!r}")
        _check_line_ends(words)
        return name
    if name in ("object", "str", "string"):
        column = column.astype(object)
        texts, gaps = column.dropna(), column[column.isna()]
        # pandas ends a field at a null, and takes the mark of byte order from the first one.
        if not all(isinstance(one, str) and _UNREAD.isdisjoint(one) for one in texts):
            raise LostInCsv(f"the values of {column.name!r}, which are not all text")
        _check_line_ends(texts)
        nones = sum(1 for one in gaps if one is None)
        if len(gaps) and ((texts == "").any() or 0 < nones < len(gaps)):
            raise LostInCsv(f"which values of {column.name!r} are missing")
        if name != "object":
            return f"text {name}"
        return "text or None" if nones else "text"
    if (kind in "biu" or name in ("float32", "float64")) or kind in "mM":
        return name
    raise LostInCsv(f"the type of {column.name!r}, {name}")


def _form(value: Any, known: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    """Return where the tuples of a container are: ``{"all": {"is": 1}}`` for a list of tuples.

    JSON has lists alone. One form describes most parts, for curves have many points: only parts
    that it does not fit have their own.

    Args:
        value: The container.
        known: The forms so far, so that equal ones are the same object.
    """
    is_tuple = isinstance(value, tuple)
    inner = value.values() if isinstance(value, dict) else value
    if not any(issubclass(one, _CONTAINERS) for one in set(map(type, inner))):
        return _TUPLE if is_tuple else _PLAIN
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    parts = [(key, one, _form(one, known)) for key, one in pairs if isinstance(one, _CONTAINERS)]
    every, some = _divided(parts)
    if every is _PLAIN and not some:
        return _TUPLE if is_tuple else _PLAIN
    form = dict(_TUPLE) if is_tuple else {}
    if every:
        form["all"] = every
    if some:
        form["at"] = some
    found = (is_tuple, id(every), tuple((key, id(one)) for key, one in some.items()))
    return known.setdefault(found, form)


def _divided(
    parts: list[tuple[Any, Any, dict[str, Any]]],
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the form of most parts, and those of the others by their keys."""
    best, most = (parts[0][2], _PLAIN), len(parts)
    if all(form is best[0] for _, _, form in parts):
        return best
    forms = {id(form): form for _, _, form in parts}
    for number, _ in Counter(id(form) for _, _, form in parts).most_common(_TRIED):
        every = forms[number]
        some = {
            str(key): form
            for key, one, form in parts
            if form is not every and not _fits(one, every)
        }
        if len(some) < most:
            best, most = (every, some), len(some)
        if not some:
            break
    return best


def _fits(value: Any, form: dict[str, Any]) -> bool:
    """Return whether a form tells the tuples of a part: an empty list may have any inside."""
    if not isinstance(value, _CONTAINERS):
        return True
    if isinstance(value, tuple) != ("is" in form):
        return False
    every, some = form.get("all", _PLAIN), form.get("at", _PLAIN)
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return all(_fits(one, some.get(str(key), every)) for key, one in pairs)
