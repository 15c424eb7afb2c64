"""Tells what a Parquet file would change in a table: a column there has one type.

pandas and pyarrow convert values of several types without a word: a dict gets the keys of the
others, and a whole number beside a missing one becomes a float. Such columns have the type
``object`` in pandas, so these alone are written and read once more.
As :mod:`.value_formats` this file is in replicas too: standard library, from Python 3.8 on.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

_KEPT = ("string", "bytes", "boolean", "decimal", "empty")
"""Columns of one type, by their name in pandas; between text, each missing value is the same."""
_SIMPLE = (int, float, str, bytes)
"""Types of values that a list compares by itself, as fast as possible."""
_SHOWN = 60
"""Characters of a value in an error."""


class LostInParquet(ValueError):
    """A Parquet file would not keep a table unchanged."""

    def __init__(self, what: str, then: Any, now: Any) -> None:
        super().__init__(f"a Parquet file changes {what}: {_shown(then)} becomes {_shown(now)}")


def check_kept(frame: Any) -> None:
    """Check that a Parquet file keeps the values and the names of a table.

    Numbers, dates and missing values may get another type, as in pandas itself, if they are equal;
    and a list or a tuple becomes an array.

    Args:
        frame: The data frame, which pyarrow can write.

    Raises:
        LostInParquet: Another value would be read.
    """
    names = [*frame.columns, *frame.index.names]
    if not all(one is None or isinstance(one, str) for one in names):
        empty = _read_again(frame.iloc[:0])
        _compare("the names of columns", names, [*empty.columns, *empty.index.names])
    for column in _of_objects(frame):
        # A name would have to be text.
        found = _read_again(column.reset_index(drop=True).to_frame("0"))["0"]
        what = "the index" if column.name is None else f"the column {column.name!r}"
        _compare(what, column, found)


def _of_objects(frame: Any) -> Iterator[Any]:
    """Yield the columns and the levels of an index that may have values of several types."""
    from pandas.api.types import infer_dtype  # type: ignore[import-not-found,unused-ignore]

    def may_change(values: Any) -> bool:
        values = getattr(values.dtype, "categories", values)
        return values.dtype == object and infer_dtype(values, skipna=True) not in _KEPT

    for at in range(frame.index.nlevels):
        # Not yet its values: of numbers they take more memory than the table.
        if may_change(frame.index.levels[at] if frame.index.nlevels > 1 else frame.index):
            yield frame.index.get_level_values(at).to_series()
    for at in range(frame.shape[1]):
        if may_change(frame.iloc[:, at]):
            yield frame.iloc[:, at]


def _read_again(frame: Any) -> Any:
    """Return a table as a program reads it."""
    import pandas  # type: ignore[import-not-found,unused-ignore]

    return pandas.read_parquet(io.BytesIO(frame.to_parquet(engine="pyarrow", compression=None)))


def _compare(what: str, values: Any, found: Any) -> None:
    for then, now in zip(values, found):  # noqa: B905 - from Python 3.10 on
        if not _is_kept(then, now):
            raise LostInParquet(what, then, now)


def _is_kept(then: Any, now: Any) -> bool:
    """Return whether a value is the same when it is read again."""
    if _has_same_bytes(then, now):
        return True
    then, now = _plain(then), _plain(now)
    if isinstance(then, dict):
        same_keys = isinstance(now, dict) and then.keys() == now.keys()
        return same_keys and all(_is_kept(one, now[key]) for key, one in then.items())
    if isinstance(then, (list, tuple)):
        if not isinstance(now, (list, tuple)) or len(then) != len(now):
            return False
        return _is_same_list(then, now) or all(map(_is_kept, then, now))
    if _is_missing(then) or _is_missing(now):
        return _is_missing(then) and _is_missing(now)
    try:
        # Equal times of two zones have other hours.
        return bool(then == now) and _offset(then) == _offset(now)
    except Exception:  # of the values: an array has no single answer
        return False


def _has_same_bytes(then: Any, now: Any) -> bool:
    """Return whether two values are equal arrays of numbers, such as embeddings, without a loop."""
    kinds = [getattr(getattr(one, "dtype", None), "kind", "O") for one in (then, now)]
    if "O" in kinds or then.dtype != now.dtype or then.shape != now.shape:
        return False
    return bool(then.tobytes() == now.tobytes())


def _is_same_list(then: Any, now: Any) -> bool:
    """Return whether two lists are equal and have only simple values, without a loop."""
    from numpy import generic  # type: ignore[import-not-found,unused-ignore]

    if all(issubclass(kind, generic) for kind in set(map(type, then))):
        then = [one.item() for one in then]
    kinds = set(map(type, then)) | set(map(type, now))
    return all(issubclass(kind, _SIMPLE) for kind in kinds) and list(then) == list(now)


def _plain(value: Any) -> Any:
    """Return an array as a list, and a number of numpy as a Python number.

    numpy would compare an integer with a float as two floats, which may be equal without reason.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind in ("m", "M"):  # numpy's lists have numbers for times of nanoseconds
        import pandas

        return list(pandas.Series(value)) if value.ndim else pandas.Series([value])[0]
    return value.tolist() if kind else value


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA
        return True


def _offset(value: Any) -> Any:
    return value.utcoffset() if hasattr(value, "utcoffset") else None


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
