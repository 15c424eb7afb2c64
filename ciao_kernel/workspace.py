"""Gather what a program needs: itself, the local modules it imports, the files it names.

The session calls :func:`gather` before anything exists. The result is the same on every
backend, so that a cell which works on this machine works on a cluster.
"""

from __future__ import annotations

import ast
import difflib
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ciao_kernel.errors import SpecError
from ciao_kernel.model import Source, SourceFile

CELL = "ciao_cell.py"
"""The program's file. It shadows no module: a ``code.py`` breaks ``import pdb``, for one."""

_IGNORED = {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}


def entry_name(file: Path) -> str:
    """Name of the delivered program for a file of the user's, such as ``train.py``.

    The program's folder comes first on ``sys.path``, so a name of the standard library would
    hide that module from every package.
    """
    stem = file.stem
    return f"ciao_{stem}.py" if stem in sys.stdlib_module_names else f"{stem}.py"


def gather(code: str, folder: Path, patterns: tuple[str, ...] = (), entry: str = CELL) -> Source:
    """Return the program with everything that travels with it.

    Args:
        code: The program's text, delivered byte for byte.
        folder: Where the user works. Nothing outside of it travels.
        patterns: What ``%files`` names.
        entry: File name of the program.

    Raises:
        SpecError: A pattern of ``%files`` matches nothing or leaves the folder.
    """
    data = code.encode()
    imports = _Imports(folder)
    imports.follow(code)
    files: dict[str, SourceFile] = {}
    for pattern in patterns:
        for file in _matches(pattern, folder):
            files.setdefault(file.path, file)
    if entry in files:
        raise SpecError(
            f"%files names {entry}, which is the name of the program itself.",
            "Rename that file.",
            directive="files",
        )
    modules = tuple(
        module for path, module in sorted(imports.modules.items()) if path not in files | {entry: 0}
    )
    return Source(
        SourceFile(entry, data, size=len(data)),
        modules,
        tuple(files[path] for path in sorted(files)),
        frozenset(imports.names),
    )


# ------------------------------------------------------------------------- local modules


@dataclass
class _Imports:
    """The closure of a program's imports over the modules that lie beside it."""

    folder: Path
    names: set[str] = field(default_factory=set)
    modules: dict[str, SourceFile] = field(default_factory=dict)

    def follow(self, code: str | bytes, package: tuple[str, ...] = ()) -> None:
        """Find what a piece of code imports; ``package`` is the package it belongs to."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # The program was checked before; a module's own fault shows when it runs.
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._module(tuple(alias.name.split(".")))
            elif isinstance(node, ast.ImportFrom):
                base = tuple(node.module.split(".")) if node.module else ()
                if node.level:
                    base = package[: len(package) - node.level + 1] + base
                self._module(base)
                for alias in node.names:
                    self._module((*base, alias.name), optional=True)

    def _module(self, parts: tuple[str, ...], *, optional: bool = False) -> None:
        if not parts:
            return
        if not optional:
            self.names.add(parts[0])
        top = self.folder / parts[0]
        if (top / "__init__.py").is_file() or (top.is_dir() and len(parts) > 1):
            # The whole package travels: what it imports by computed names is found too.
            for file in _walk(top):
                if file.suffix == ".py":
                    self._add(file)
        elif (module := self.folder / f"{parts[0]}.py").is_file() and len(parts) == 1:
            self._add(module)
        elif len(parts) > 1 and not optional:
            self._module(parts[:1])

    def _add(self, file: Path) -> None:
        path = file.relative_to(self.folder).as_posix()
        if path in self.modules:
            return
        try:
            data = file.read_bytes()
        except OSError:
            return
        self.modules[path] = SourceFile(path, origin=file, size=len(data))
        parts = PurePosixPath(path).with_suffix("").parts
        self.follow(data, parts[:-1])


# ---------------------------------------------------------------------------------- files


def _matches(pattern: str, folder: Path) -> Iterator[SourceFile]:
    relative = PurePosixPath(pattern)
    if relative.is_absolute() or ".." in relative.parts or pattern.startswith("~"):
        raise SpecError(
            f"%files cannot take {pattern}: it is outside the notebook's folder, {folder}.",
            "Copy the file into that folder, or link to it there.",
            directive="files",
        )
    if any(character in pattern for character in "*?["):
        paths = sorted(folder.glob(pattern))
    else:
        paths = [folder / relative] if (folder / relative).exists() else []
    if not paths:
        raise SpecError(
            f"%files names {pattern}, and there is nothing of that name in {folder}.",
            _nearest(pattern, folder),
            directive="files",
        )
    for path in paths:
        for file in _walk(path) if path.is_dir() else [path]:
            name = file.relative_to(folder).as_posix()
            yield SourceFile(name, origin=file, size=file.stat().st_size)


def _walk(top: Path) -> Iterator[Path]:
    """All files below a folder, without caches; links to folders are not followed."""
    for parent, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(files):
            if not name.endswith((".pyc", ".pyo")) and (file := Path(parent, name)).is_file():
                yield file


def _nearest(pattern: str, folder: Path) -> str:
    parent = (folder / pattern).parent
    names = [entry.name for entry in parent.iterdir()] if parent.is_dir() else []
    near = difflib.get_close_matches(Path(pattern).name, names, n=1)
    if near:
        return f"Did you mean {(PurePosixPath(pattern).parent / near[0]).as_posix()}?"
    return "Paths are relative to the folder of the notebook."
