"""Looks into functions: what a decorator has wrapped, and whether the code of two is equal."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any


def unwrapped(value: Any) -> Any:
    """Return the function inside its decorators."""
    try:
        return inspect.unwrap(value) if callable(value) else value
    except ValueError:  # it wraps itself
        return value


def is_equal(one: CodeType, other: CodeType) -> bool:
    """Return whether code does the same, wherever its lines are."""
    parts = [
        (code.co_code, code.co_names, code.co_varnames, len(code.co_consts))
        for code in (one, other)
    ]
    return parts[0] == parts[1] and all(
        is_equal(a, b)
        if isinstance(a, CodeType) and isinstance(b, CodeType)
        else (type(a), a) == (type(b), b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )
