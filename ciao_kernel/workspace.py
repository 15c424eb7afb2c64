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

from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.model import Source, SourceFile

CELL = "ciao_cell.py"
"""The program's file. It shadows no module: a ``code.py`` breaks ``import pdb``, for one."""

_IGNORED = {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}
_ENVIRONMENT = "pyvenv.cfg"
"""Marks the folder of a virtual environment, which is of no use anywhere else."""


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
        SourceError: A local module cannot be read.
    """
    data = code.encode()
    imports = _Imports(folder)
    imports.follow(code)
    files: dict[str, SourceFile] = {}
    for pattern in patterns:
        for file in _matches(pattern, folder, entry):
            files.setdefault(file.path, file)
    modules = imports.modules
    return Source(
        SourceFile(entry, data, size=len(data)),
        tuple(modules[path] for path in sorted(modules) if path not in files and path != entry),
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
                    base = package[: max(0, len(package) - node.level + 1)] + base
                self._module(base)

    def _module(self, parts: tuple[str, ...]) -> None:
        """Take along what an import of ``a.b.c`` loads, if it lies here."""
        if not parts:
            return
        self.names.add(parts[0])
        if parts[0] in sys.stdlib_module_names:
            # In a plain cell too it is Python's own that is found: the kernel has it already.
            return
        package, module = self.folder / parts[0], self.folder / f"{parts[0]}.py"
        # Python's own order: a package, then a module, then a folder without __init__.py.
        if module.is_file() and not (package / "__init__.py").is_file():
            self._add(module)
        elif package.is_dir():
            # The whole package travels: what it imports by computed names is found too.
            for file in _walk(package):
                if file.suffix == ".py":
                    self._add(file)

    def _add(self, file: Path) -> None:
        path = file.relative_to(self.folder).as_posix()
        if path in self.modules:
            return
        try:
            data = file.read_bytes()
        except OSError as error:
            raise SourceError(
                f"{path}, which the code imports, cannot be read: {error.strerror}.",
                "Fix its permissions, or do without the import.",
            ) from None
        self.modules[path] = SourceFile(path, origin=file, size=len(data))
        self.follow(data, PurePosixPath(path).parts[:-1])


# ---------------------------------------------------------------------------------- files


def _matches(pattern: str, folder: Path, entry: str) -> Iterator[SourceFile]:
    """The files that one word of ``%files`` names: a file, a folder with all in it, a glob."""
    relative = PurePosixPath(pattern)
    if not pattern.strip():
        raise _unusable("an empty name", "there is no such file")
    if relative.is_absolute() or ".." in relative.parts or pattern.startswith("~"):
        raise SpecError(
            f"%files cannot take {pattern}: it is outside the notebook's folder, {folder}.",
            "Copy the file into that folder, or link to it there.",
            directive="files",
        )
    try:
        found = [path] if (path := folder / relative).exists() else _glob(pattern, folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _unusable(pattern, reason or "it is no pattern") from None
    if not found:
        raise SpecError(
            f"%files names {pattern}, and there is nothing of that name in {folder}.",
            _nearest(pattern, folder),
            directive="files",
        )
    for path in found:
        inside = list(_walk(path)) if path.is_dir() else [path]
        if not inside and path == folder / relative:
            raise _unusable(pattern, "there is no file in that folder")
        for file in inside:
            name = file.relative_to(folder).as_posix()
            if name != entry:
                yield _file(name, file)
            elif file == folder / relative:
                raise SpecError(
                    f"%files names {entry}, which is the name of the program itself.",
                    "Leave it out, or rename that file.",
                    directive="files",
                )


def _glob(pattern: str, folder: Path) -> list[Path]:
    """What a pattern matches; as in a shell, hidden files only where it says so."""
    if not any(character in pattern for character in "*?["):
        return []
    hidden = any(part.startswith(".") for part in PurePosixPath(pattern).parts)
    found = []
    for path in sorted(folder.glob(pattern)):
        parts = path.relative_to(folder).parts
        secret = not hidden and any(part.startswith(".") for part in parts)
        if path.exists() and not secret and _IGNORED.isdisjoint(parts):
            found.append(path)
    return found


def _file(name: str, file: Path) -> SourceFile:
    try:
        if not file.is_file():
            raise _unusable(name, "it is neither a file nor a folder")
        with file.open("rb") as stream:
            return SourceFile(name, origin=file, size=os.fstat(stream.fileno()).st_size)
    except OSError as error:
        raise _unusable(name, error.strerror or str(error)) from None


def _unusable(name: str, reason: str) -> SpecError:
    return SpecError(
        f"%files cannot take {name}: {reason}.", "Fix it, or leave it out.", directive="files"
    )


def _walk(top: Path) -> Iterator[Path]:
    """All files below a folder, without caches; links to folders are not followed."""
    for parent, folders, files in os.walk(top):
        if _ENVIRONMENT in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(files):
            if not name.endswith((".pyc", ".pyo")) and (file := Path(parent, name)).is_file():
                yield file


def _nearest(pattern: str, folder: Path) -> str:
    parent = (folder / pattern).parent
    try:
        names = [entry.name for entry in parent.iterdir()]
    except OSError:
        names = []
    near = difflib.get_close_matches(Path(pattern).name, names, n=1)
    if near:
        return f"Did you mean {(PurePosixPath(pattern).parent / near[0]).as_posix()}?"
    return "Paths are relative to the folder of the notebook."
