"""Gather a program, the local modules that it imports, and the files that it names.

The session calls :func:`gather` before it creates anything. The result is the same on every
backend, so that a cell that works on this machine works on a cluster.
"""

from __future__ import annotations

import ast
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery import files
from ciao_kernel.errors import SourceError
from ciao_kernel.model import Source, SourceFile

CELL = "ciao_cell.py"
"""File name of the program. It shadows no module: a ``code.py`` would break ``import pdb``."""


def entry_name(file: Path) -> str:
    """Return the name of the delivered program for a user's file, such as ``train.py``.

    The program's folder comes first on ``sys.path``, so a name of the standard library would
    hide that module from every package.
    """
    stem = file.stem
    return f"ciao_{stem}.py" if stem in sys.stdlib_module_names else f"{stem}.py"


def gather(code: str, folder: Path, words: tuple[str, ...] = (), entry: str = CELL) -> Source:
    """Return the program with everything that is delivered with it.

    Args:
        code: The program's text, delivered byte for byte.
        folder: The user's working folder. Files outside it are delivered only through links in it.
        words: The words of ``%files``.
        entry: File name of the program.

    Raises:
        SpecError: A word of ``%files`` names nothing, or something that cannot be delivered.
        SourceError: A local module cannot be read.
    """
    data = code.encode()
    imports = _Imports(folder)
    imports.follow(code)
    named = files.find(words, folder, entry)
    modules, taken = imports.modules, named.files
    return Source(
        SourceFile(entry, data, size=len(data)),
        tuple(modules[path] for path in sorted(modules) if path not in taken and path != entry),
        tuple(taken[path] for path in sorted(taken)),
        frozenset(imports.names),
        named.notes,
    )


# ------------------------------------------------------------------------- local modules


@dataclass
class _Imports:
    """The modules beside a program that it imports, directly or through other modules."""

    folder: Path
    names: set[str] = field(default_factory=set)
    modules: dict[str, SourceFile] = field(default_factory=dict)
    _unread: list[tuple[str | bytes, tuple[str, ...]]] = field(default_factory=list)
    """Code that is still to be read, each piece with its package."""

    def follow(self, code: str) -> None:
        """Find the modules that a program imports, and the modules that those import."""
        self._unread.append((code, ()))
        while self._unread:
            self._read(*self._unread.pop())

    def _read(self, code: str | bytes, package: tuple[str, ...]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # The program was checked before; an error in a module appears when it runs.
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
        """Add the files that an import of ``a.b.c`` loads, if they are local."""
        if not parts or parts[0] in self.names:
            return
        self.names.add(parts[0])
        if parts[0] in sys.stdlib_module_names:
            # A plain cell gets Python's own module too: the kernel has already loaded it.
            return
        package, module = self.folder / parts[0], self.folder / f"{parts[0]}.py"
        # Python's own order: a package, then a module, then a folder without __init__.py.
        if module.is_file() and not (package / "__init__.py").is_file():
            self._add(module)
        elif package.is_dir():
            # The whole package is delivered: imports by computed names work too.
            for file in files.walk(package):
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
                "Fix its permissions, or remove the import.",
            ) from None
        self.modules[path] = SourceFile(path, origin=file, size=len(data))
        self._unread.append((data, PurePosixPath(path).parts[:-1]))
