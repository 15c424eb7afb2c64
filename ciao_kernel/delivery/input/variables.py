"""Write the notebook's variables that ``%input`` names to files for a job.

The session calls :func:`deliver` before it creates anything; completion calls
:func:`storable_names`. Functions and classes are delivered as source in a module, ``ciao_input``,
which also reads the files. :mod:`ciao_kernel.delivery.input.value_files` has the format of each
file.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ciao_kernel.delivery.input.definitions import Definitions, collect, is_code
from ciao_kernel.delivery.input.remade_objects import level_note
from ciao_kernel.delivery.input.value_files import encode, input_error
from ciao_kernel.delivery.input.value_formats import base_type, suffix_of
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Source, SourceFile

FOLDER = "input"
"""Folder of the files, beside the program."""
MODULE = "ciao_input"
"""Module that has the variables by their names, beside the program."""

_HISTORY = ("In", "Out")
"""Lists of cells and results; names that begin with ``_`` are IPython's or private."""
_SECRET_NAME = re.compile(r"(?i)passw|pwd|token(?!iz)|secret|credential|api_?key")
"""Names of values that are sent only if the user names them."""


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
    requested = {name: _value(name, variables) for name in names}
    code = [name for name, value in requested.items() if is_code(value)]
    definitions = collect(code, variables or {})
    stored: dict[str, tuple[str, str, dict[str, Any]]] = {}
    dependencies = {
        name: user for name, user in definitions.values.items() if name not in requested
    }
    for name in [*requested, *dependencies]:
        if name in code:
            continue
        value = _value(name, variables)
        if name in dependencies:
            suffix, data, layout = _encode_dependency(dependencies[name], name, value)
        else:
            suffix, data, layout = encode(name, value)
        stored[name] = f"{name}.{suffix}", base_type(type(value)), layout
        _add(files, f"{FOLDER}/{name}.{suffix}", data, name)
    if code or MODULE in source.imports:
        path = f"{MODULE}.py"
        if any(file.path == path for file in source.modules):
            first = next(iter(requested))
            raise input_error(
                f"there is a {path} beside the notebook, but %input creates a module of that name.",
                "Rename the file.",
                first,
            )
        text = _module(stored, definitions)
        _add(files, path, text.encode(), next(iter(requested)))
    program = (source.entry.data or b"").decode(errors="replace")
    note = level_note(definitions.loggers, program + definitions.code)
    notes = (*source.notes, note) if note else source.notes
    return replace(source, files=tuple(files[path] for path in sorted(files)), notes=notes)


def _encode_dependency(requested: str, name: str, value: Any) -> tuple[str, bytes, dict[str, Any]]:
    """Encode a value that a function uses, which the user has not named."""
    if _SECRET_NAME.search(name):
        raise input_error(
            f"%input cannot take {requested}: it uses {name}, which may be a password.",
            f"On a cluster use %envsecret for passwords. To send {name} anyway, name it too: "
            f"%input={requested} {name}.",
            requested,
        )
    try:
        return encode(name, value, requested)
    except SpecError as error:
        text = error.message.removeprefix(f"%input cannot take {name}")
        raise input_error(
            f"%input cannot take {requested}: it uses {name}{text}", error.hint, requested
        ) from None


def _add(files: dict[str, SourceFile], path: str, data: bytes, name: str) -> None:
    if FOLDER in files:
        raise input_error(
            "%files includes a file named input, but %input creates a folder of that name.",
            "Rename the file.",
            name,
        )
    if path in files:
        raise input_error(
            f"%files already includes {path}.", "Rename the variable or the file.", name
        )
    files[path] = SourceFile(path, data, size=len(data))


def _module(stored: Mapping[str, tuple[str, str, dict[str, Any]]], definitions: Definitions) -> str:
    """Return the module that a program imports as ``ciao_input``."""
    from ciao_kernel.delivery.input import input_loader

    # As the notebook's cells were compiled: a dataclass keeps text in place of types with it.
    future = ["from __future__ import annotations"] if definitions.future else []
    lines = [
        '"""What `%input` names."""',
        *future,
        *(["del annotations"] if future else []),
        "import types as _types",
        "",
        '_loader = _types.ModuleType("_loader")',
        "_loader.__file__ = __file__",
        f"exec({inspect.getsource(input_loader)!r}, _loader.__dict__)",
        # Python compiles one long text in no time, but a large dict in seconds.
        f"_loader.STORED.update(_loader.json.loads({json.dumps(stored)!r}))",
        "",
        "def __getattr__(name):",
        "    value = globals()[name] = _loader.load(name)  # when it is first used",
        "    return value",
        "",
        "def __dir__():",
        "    return sorted({*globals(), *_loader.STORED})",
        "",
        # Functions find global names only if they are really there.
        *(f"{name} = _loader.load({name!r})" for name in definitions.values),
        "",
        definitions.code,
    ]
    return "\n".join(lines)


def storable_names(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the user's variables whose types can be stored; no value is inspected."""
    for name, value in list(variables.items()):
        if name in _HISTORY or name.startswith("_"):
            continue
        if suffix_of(type(value)) or (is_code(value) and value.__module__ == "__main__"):
            yield name


def _value(name: str, variables: Mapping[str, Any] | None) -> Any:
    if variables is None:
        raise input_error(
            "%input names variables of a notebook, but there is no notebook here.",
            "Store them in files, and name the files with %files.",
            name,
        )
    if name in variables:
        return variables[name]
    near = difflib.get_close_matches(name, storable_names(variables), n=1)
    raise input_error(
        f"%input names {name}, but there is no variable of that name.",
        f"Did you mean {near[0]}?" if near else "First run the cell that creates it.",
        name,
    )
