"""Layout of a value: all that its file does not tell, so that the same value is read again.

JSON has no tuples, and CSV, the format of tables without pyarrow, has neither types nor an index.
The layout travels beside the type of a value, for its reader (input_loader.py). As
:mod:`.value_formats` this file is in replicas too: standard library, from Python 3.8 on.
"""

from __future__ import annotations

from typing import Any

_UNREAD = frozenset("\0\ufeff")


def layout(suffix: str, value: Any, levels: int) -> dict[str, Any]:
    """Return what the file of a value does not tell; it can be written as JSON.

    Args:
        suffix: The suffix of the file.
        value: The value, or the data frame in its CSV file.
        levels: The number of index levels in that file.

    Raises:
        LostInCsv: The file and the layout would not keep the table unchanged.
    """
    if suffix == "csv":
        return _csv_layout(value, levels)
    if suffix == "json" and isinstance(value, (dict, list, tuple)) and _has_inner_tuple(value):
        # The type of the value itself is known.
        return {"tuples": {key: one for key, one in _tuples(value).items() if key != "is"}}
    return {}


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
    if not is_text and labels.dtype.kind not in "iu":
        raise LostInCsv("names of columns that are not text")
    names = list(frame.index.names[:levels])
    if not all(one is None or isinstance(one, (str, int)) for one in (*names, labels.name)):
        raise LostInCsv("names of index levels that are not text")
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
        return name
    if name in ("object", "str", "string"):
        column = column.astype(object)
        texts, gaps = column.dropna(), column[column.isna()]
        # pandas ends a field at a null, and takes the mark of byte order from the first one.
        if not all(isinstance(one, str) and _UNREAD.isdisjoint(one) for one in texts):
            raise LostInCsv(f"the values of {column.name!r}, which are not all text")
        nones = sum(1 for one in gaps if one is None)
        if len(gaps) and ((texts == "").any() or 0 < nones < len(gaps)):
            raise LostInCsv(f"which values of {column.name!r} are missing")
        if name != "object":
            return f"text {name}"
        return "text or None" if nones else "text"
    if (kind in "biu" or name in ("float32", "float64")) or kind in "mM":
        return name
    raise LostInCsv(f"the type of {column.name!r}, {name}")


def _has_inner_tuple(value: Any) -> bool:
    """Return whether a tuple is inside a value."""
    stack = [value]
    while stack:
        container = stack.pop()
        inner = container.values() if isinstance(container, dict) else container
        for one in inner:
            if isinstance(one, tuple):
                return True
            if isinstance(one, (dict, list)):
                stack.append(one)
    return False


def _tuples(value: Any) -> dict[str, Any]:
    """Return where the tuples of a value are: ``{"all": {"is": 1}}`` for a list of tuples.

    JSON has lists alone. Parts with the same tuples are described once: curves have many points.
    """
    found: dict[str, Any] = {"is": 1} if isinstance(value, tuple) else {}
    if not isinstance(value, (dict, list, tuple)):
        return found
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    parts = {str(key): _tuples(one) for key, one in pairs}
    first = next(iter(parts.values()), {})
    if first and all(one == first for one in parts.values()):
        found["all"] = first
    elif at := {key: one for key, one in parts.items() if one}:
        found["at"] = at
    return found
