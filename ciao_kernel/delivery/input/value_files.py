"""The file of one variable of ``%input``, and the error for a value that has no file format.

A program reads the file back with one call; :mod:`.value_formats` has the formats.
"""

from __future__ import annotations

import json
from enum import Enum
from numbers import Number
from pathlib import PurePath
from typing import Any

from ciao_kernel.delivery.input.parquet_losses import LostInParquet, check_kept
from ciao_kernel.delivery.input.value_formats import NotStorable, described, suffix_of, to_bytes
from ciao_kernel.delivery.input.value_layouts import LostInCsv, layout, lost_part, plain_type
from ciao_kernel.errors import SpecError

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
_MOST_TUPLES = 64_000
"""Characters of ``ciao_input`` for the places of a value's tuples; with more they stay lists."""


def encode(name: str, value: Any, user: str = "") -> tuple[str, bytes, dict[str, Any]]:
    """Return the suffix and the bytes of a value's file, and what the file does not tell.

    Args:
        name: Name of the variable.
        value: Its value.
        user: The function or the class that uses it, if ``%input`` does not name it.

    Raises:
        SpecError: No file format supports the value.
    """
    suffix = suffix_of(type(value))
    try:
        found, data = to_bytes(name, value)
        if (part := lost_part(found, value)) is not None:
            raise NotStorable(part)
        content, levels, unnamed = described(name, value, found)
        if found == "parquet":
            check_kept(content)
        places = layout(found, content, levels, unnamed)
        if len(json.dumps(places.get("tuples"))) > _MOST_TUPLES:
            places = {}
        return found, data, places
    except NotStorable as error:
        expression = name if error.value is value else _expression_of(name, value, error.value)
        kind = type(error.value)
        message = (
            f"%input cannot take {name}: no file format supports values of type {kind.__name__}"
        )
        if expression != name:
            message += f" inside another value, such as {expression}"
        hint = _conversion_hint(expression, kind, expression != name) or (
            f"Create it inside {user}, or put {user} and it into a module beside the notebook."
            if user
            else "Use a type that pandas, numpy or JSON can store"
        )
        raise input_error(f"{message}.", hint, name) from None
    except Exception as error:  # pandas passes on any error of its engines
        raise input_error(
            f"%input cannot take {name}, a {type(value).__name__}: {_error_text(error)}.",
            _table_hint(error) if suffix == "parquet" else "Change the value",
            name,
        ) from error


def _table_hint(error: Exception) -> str:
    """Return the hint for a table that Parquet or CSV cannot store."""
    if isinstance(error, LostInCsv):
        return "Install pyarrow for the notebook and the replicas: it keeps tables as they are"
    if isinstance(error, LostInParquet):
        return "Give each column one type, with text as its name, and all dicts in it the same keys"
    duplicate = "duplicate" in str(error).lower()
    return "Give each column a unique name" if duplicate else "Give each column one type"


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


def _conversion_hint(expression: str, kind: type, is_nested: bool) -> str:
    """Return the beginning of the hint for a value without a file; "" if nothing converts it.

    Args:
        expression: The expression for the value.
        kind: Its type.
        is_nested: True if the value is inside another value.
    """
    suffix, plain = suffix_of(kind), plain_type(kind)
    if suffix not in ("", "json") and (is_nested or not plain):
        return "Make it a separate variable, and name that too"
    template = next(
        (template for attribute, template in _CONVERSIONS.items() if hasattr(kind, attribute)), ""
    )
    if issubclass(kind, Enum):
        template = "{}.value"
    elif plain:
        template = f"{plain}({{}})"
    elif suffix or issubclass(kind, PurePath | Number):
        template = "float({})" if kind.__name__ == "longdouble" else "str({})"
    if not template:
        return ""
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
