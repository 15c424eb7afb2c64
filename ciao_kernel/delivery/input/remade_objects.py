"""Objects of the standard library that no file holds, and that one line makes again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, TypeVar

from ciao_kernel.visible_text import visible


def line(name: str, value: Any) -> str | None:
    """Return the line that makes an object again; None for an object that needs more than a name.

    The collection of definitions asks for objects that functions and classes use. The line binds no
    other name, which might be one of the user.

    Args:
        name: Name of the variable.
        value: The object.
    """
    if type(value) is logging.Logger and _is_plain_logger(value):
        return f"{name} = __import__('logging').getLogger({value.name!r})"
    if type(value) is TypeVar and _is_plain_variable(value):
        return f"{name} = __import__('typing').TypeVar({value.__name__!r})"
    return None


def level_note(loggers: Iterable[logging.Logger], code: str) -> str:
    """Return a note for the user about lines that loggers write here alone; "" if there are none.

    The delivery of variables asks for it: a new program has a root logger with its first level.

    Args:
        loggers: Those that are made again.
        code: The program and its definitions; a ``basicConfig`` in it sets the level.
    """
    if "basicConfig" in code:
        return ""
    for one in loggers:
        level = one.getEffectiveLevel()
        if level != logging.WARNING:
            name = logging.getLevelName(level)
            return (
                f"the logger {visible(one.name)} has the level {name} here, and WARNING in the "
                f"replicas: call logging.basicConfig(level={level}) in this cell too"
            )
    return ""


def _is_plain_logger(logger: logging.Logger) -> bool:
    """Return whether a logger is as ``getLogger`` makes it: one with handlers would be mute."""
    is_set = logger.handlers or logger.filters or logger.level or logger.disabled
    known = logger.manager.loggerDict.get(logger.name)
    return known is logger and logger.propagate and not is_set


def _is_plain_variable(variable: Any) -> bool:
    """Return whether a type variable has nothing but its name; other variances show in its text."""
    has_more = variable.__bound__ is not None or variable.__constraints__
    has_default = getattr(variable, "has_default", bool)()  # Python 3.13
    return repr(variable) == f"~{variable.__name__}" and not has_more and not has_default
