"""Where a user's program is, and how Python starts it: as a script or as a module.

A file in a package runs as ``python -m package.file`` from the folder that contains the package:
only then do its relative imports work (Python's documentation, "The import system", "Special
considerations for __main__"). Any other file runs as a script in its own folder.
"""

from __future__ import annotations

import ast
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.delivery.input.imports import CELL, entry_name
from ciao_kernel.errors import UsageError
from ciao_kernel.visible_text import visible

_PACKAGE = "__init__.py"
_MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class Program:
    """A program on this machine, before delivery."""

    folder: Path
    """The folder that the replicas' working folder is a copy of."""
    entry: str = CELL
    """Path of the delivered program, relative to :attr:`folder`."""
    module: str = ""
    """Dotted name for ``python -m``; "" if the program runs as a script."""
    files_folder: Path | None = None
    """Where ``%files`` looks first, if that is not :attr:`folder`: the user's working folder."""


def of_file(path: Path, code: str, here: Path) -> Program:
    """Return how a file runs.

    Args:
        path: The file, absolute.
        code: Its text.
        here: The user's working folder.
    """
    script = Program(path.parent, entry_name(path))
    names = [path.stem]
    root = path.parent
    while (root / _PACKAGE).is_file() and root.parent != root:
        names.insert(0, root.name)
        root = root.parent
    usable = all(name.isidentifier() for name in names) and path.suffix == ".py"
    if len(names) == 1 or path.name == _PACKAGE or not usable:
        return script
    if names[0] in sys.stdlib_module_names:  # a package `json` would hide Python's own
        return script
    asks = _asks_for_module(code, names[0], path.parent)
    if asks is None:
        asks = root.is_relative_to(here)
    module = ".".join(names).removesuffix(f".{_MAIN}")
    return Program(root, path.relative_to(root).as_posix(), module) if asks else script


def of_module(name: str, here: Path) -> Program:
    """Return how ``python -m NAME`` runs in a folder.

    Raises:
        UsageError: The folder has no such module, or it cannot be run.
    """
    parts = name.split(".")
    file = here.joinpath(*parts[:-2], ".".join(parts[-2:]))
    is_file = len(parts) > 1 and parts[-1] == "py" and file.is_file()
    if is_file or not all(part.isidentifier() for part in parts):
        path = name.removesuffix(".py").strip("/").replace("/", ".")
        raise UsageError(
            f"{visible(name)} is not the name of a module.",
            f"Write -m {visible(path)}, or leave -m out and name the file.",
        )
    if parts[0] in sys.stdlib_module_names:
        raise UsageError(
            f"{visible(name)} cannot run: {parts[0]} is a module of Python itself.",
            f"Rename the {'package' if len(parts) > 1 else 'file'}, or leave -m out and name the "
            "file.",
        )
    base = here.joinpath(*parts)
    # Python's own order: a package, then a module, then a folder without __init__.py.
    if base.with_name(f"{base.name}.py").is_file() and not (base / _PACKAGE).is_file():
        entry = base.with_name(f"{base.name}.py")
    elif (base / f"{_MAIN}.py").is_file():
        entry = base / f"{_MAIN}.py"
    elif base.is_dir():
        raise UsageError(
            f"the package {visible(name)} cannot run: it has no {_MAIN}.py.",
            f"Name one of its modules: -m {visible(name)}.train.",
        )
    else:
        raise UsageError(
            f"there is no module {visible(name)} in {visible(str(here))}.",
            "Is the name right? Change to the folder that contains the package.",
        )
    return Program(here, entry.relative_to(here).as_posix(), name)


def _asks_for_module(code: str, package: str, folder: Path) -> bool | None:
    """Return whether a program's imports work only in a module, or (False) only in a script.

    Args:
        code: The program.
        package: The outermost package that contains it.
        folder: The folder of the program.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the program is checked elsewhere
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                return True
            names.add((node.module or "").partition(".")[0])
    if package in names:
        return True
    beside = [name for name in names - sys.stdlib_module_names if name]
    if any((folder / f"{one}.py").is_file() or _is_package(folder / one) for one in beside):
        return False
    return None


def _is_package(folder: Path) -> bool:
    return (folder / _PACKAGE).is_file()
