"""Facts about variables that a program did not have at its end (``%output``).

This file is in replicas as ``ciao_absent_values``, beside the writer of the values, which imports
it only if a variable is missing. Standard library, from Python 3.8 on.
"""

from __future__ import annotations

import difflib
import os
import sys
import types

TYPE_CHECKING = False  # not from typing, as in the writer
if TYPE_CHECKING:
    from typing import Any

NEAR, PATH = "near", "path"
"""Keys of what is known of a name: a variable with nearly that name, and :data:`FOLDER` or
:data:`FILE` if that name is in the program's folder."""
FOLDER, FILE = "folder", "file"
_CUTOFF = 0.7
_LONG = 80
"""Longest name that is told."""
_NO_VALUES = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


def facts(names: list[str], variables: dict[str, Any], folder: str) -> dict[str, dict[str, str]]:
    """Return what is known of missing variables, by their names.

    Args:
        names: The names.
        variables: All variables of the program.
        folder: The program's folder, to which paths of ``%output`` are relative.
    """
    # A thread may still add variables, and isinstance would ask the value for its class.
    values = [
        name
        for name, value in list(variables.items())
        if isinstance(name, str)
        and not name.startswith("_")
        and len(name) <= _LONG
        and not issubclass(type(value), _NO_VALUES)
    ]
    found: dict[str, dict[str, str]] = {}
    for name in names:
        place = os.path.join(folder, name)
        if os.path.isdir(place):
            found[name] = {PATH: FOLDER}
        elif os.path.isfile(place):
            found[name] = {PATH: FILE}
        else:
            near = difflib.get_close_matches(name, values, n=1, cutoff=_CUTOFF)
            if near:
                found[name] = {NEAR: near[0]}
    return found


def raised() -> str:
    """Return the name of the exception by which the program ends, "" without one."""
    kind = getattr(sys, "last_type", None)  # Python shows it, and then ends
    return kind.__name__[:_LONG] if isinstance(kind, type) else ""
