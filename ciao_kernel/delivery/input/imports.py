"""Gather a program, the local modules that it imports, and the files that it names.

The session calls :func:`gather` before it creates anything. The result is the same on every
backend, so that a cell that works on this machine works on a cluster.
"""

from __future__ import annotations

import ast
import logging
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery.input import (
    files,
    files_option,
    import_statements,
    left_out_modules,
    secret_files,
)
from ciao_kernel.delivery.input.boundary import Boundary
from ciao_kernel.delivery.input.held_file import HeldFile
from ciao_kernel.delivery.input.ignore_files import IgnoreFiles
from ciao_kernel.errors import SourceError
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.model import Source, SourceFile
from ciao_kernel.visible_text import listed, visible

_log = logging.getLogger(__name__)

CELL = "ciao_cell.py"
"""File name of the program. It shadows no module: a ``code.py`` would break ``import pdb``."""


TEXT = "ciao_cell"
"""File name of a program in any language; no suffix, since its language is not known."""


def entry_name(file: Path) -> str:
    """Return the name of the delivered program for a user's file, such as ``train.py``.

    The program's folder comes first on ``sys.path``, so a name of the standard library would
    hide that module from every package.
    """
    stem = file.stem
    return f"ciao_{stem}.py" if stem in sys.stdlib_module_names else f"{stem}.py"


def gather(
    code: str,
    folder: Path,
    words: tuple[str, ...] = (),
    entry: str = CELL,
    other_code: str = "",
    *,
    module: str = "",
    files_folder: Path | None = None,
    python: bool = True,
) -> Source:
    """Return the program with everything that is delivered with it.

    Args:
        code: The program's text, delivered byte for byte.
        folder: The user's working folder.
        words: The words of ``%files``.
        entry: Path of the program, relative to the folder.
        other_code: Other code that is delivered and whose imports count too.
        module: Dotted name of the program if it runs as a module; its package is delivered.
        files_folder: Where ``words`` are looked up first, if that is not ``folder``.
        python: Whether the program is Python; others import nothing.

    Raises:
        SpecError: A word of ``%files`` names nothing, or something that cannot be delivered.
        SourceError: A local module cannot be read, may hold passwords or keys, or is a link that
            leads out of the folder.
    """
    data = code.encode()
    named = _named(words, folder, entry, files_folder)
    delivered = named.files
    imports = _Imports(folder, frozenset(delivered) | {entry})
    package = PurePosixPath(entry).parts[:-1] if module else ()
    if package:
        imports.follow(f"import {'.'.join(package)}")
    if python:
        imports.follow(code, package)
    imports.follow(other_code)
    modules = {p: m for p, m in imports.modules.items() if p not in delivered and p != entry}
    return Source(
        SourceFile(entry, data, size=len(data)),
        tuple(modules[path] for path in sorted(modules)),
        tuple(delivered[path] for path in sorted(delivered)),
        frozenset(imports.names),
        (*imports.notes(delivered), *named.notes),
        module,
    )


def _named(
    words: tuple[str, ...], folder: Path, entry: str, files_folder: Path | None
) -> files.Found:
    """Find the files that the words name, in one folder or in two."""
    if files_folder is None or files_folder == folder:
        return files.find(words, folder, entry)
    for_files_folder, for_folder = files_option.split(words, files_folder, folder)
    first = files.find(for_files_folder, files_folder, entry)
    second = files.find(for_folder, folder, entry)
    return files.Found({**second.files, **first.files}, first.notes + second.notes)


# ------------------------------------------------------------------------- local modules


@dataclass
class _Imports:
    """The modules beside a program that it imports, directly or through other modules.

    Args:
        folder: The user's working folder.
        allowed: Paths of the program and of files that the user names: they may be links out of
            the folder, or hold keys.
    """

    folder: Path
    allowed: Collection[str]
    names: set[str] = field(default_factory=set)
    modules: dict[str, SourceFile] = field(default_factory=dict)
    _queue: list[tuple[str | bytes, tuple[str, ...]]] = field(default_factory=list)
    """Code that is still to be read, each piece with its package."""
    _excluded: dict[str, tuple[Path, str]] = field(default_factory=dict)
    """Modules of packages that an ignore file excludes, by their dotted names, with that file."""
    _imported: set[str] = field(default_factory=set)
    """Dotted names that some code imports."""
    _shadowed: list[str] = field(default_factory=list)
    """Folders with modules that an installed package hides."""
    _left_out: list[str] = field(default_factory=list)
    """Extension modules, and linked folders with modules."""

    @cached_property
    def _ignore_files(self) -> IgnoreFiles:
        return IgnoreFiles(self.folder)

    @cached_property
    def _boundary(self) -> Boundary:
        return Boundary.around(self.folder)

    def follow(self, code: str, package: tuple[str, ...] = ()) -> None:
        """Find the modules that a program imports, and the modules that those import."""
        self._queue.append((code, package))
        while self._queue:
            self._parse(*self._queue.pop())
            if not self._queue:
                # An import by its name includes a module that is excluded, such as generated code.
                for name in self._imported & self._excluded.keys():
                    self._add(self._excluded.pop(name)[0])

    def notes(self, delivered: Collection[str]) -> Iterator[str]:
        """Yield a sentence for each reason why modules were left out.

        Args:
            delivered: Paths of files that are delivered anyway.
        """
        left: dict[str, list[str]] = {}
        for file, origin in self._excluded.values():
            if (path := file.relative_to(self.folder).as_posix()) not in delivered:
                left.setdefault(origin, []).append(path)
        for origin, paths in left.items():
            yield f"modules excluded by {visible(origin)}: {listed(paths)}"
        for name in self._shadowed:
            if not any(path.startswith(f"{name}/") for path in delivered):
                yield (
                    f"the folder {name} is not included: `import {name}` finds the installed "
                    f"package; %files={quote(name)} includes the folder"
                )

        if note := left_out_modules.note(self._left_out, delivered):
            yield note

    def _parse(self, code: str | bytes, package: tuple[str, ...]) -> None:
        for node in import_statements.statements(code):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    parts = tuple(alias.name.split("."))
                    self._note_import(parts)
                    self._add_module(parts)
            else:
                base = tuple(node.module.split(".")) if node.module else ()
                if node.level:
                    base = package[: max(0, len(package) - node.level + 1)] + base
                for alias in node.names:
                    self._note_import((*base, alias.name))
                self._add_module(base)

    def _note_import(self, parts: tuple[str, ...]) -> None:
        """Note a dotted name and its packages, whose ``__init__.py`` Python runs too."""
        self._imported.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))

    def _add_module(self, parts: tuple[str, ...]) -> None:
        """Add the files that an import of ``a.b.c`` loads, if they are local."""
        if not parts or parts[0] in self.names:
            return
        self.names.add(parts[0])
        if parts[0] in sys.stdlib_module_names:
            # A plain cell gets Python's own module too: the kernel has already loaded it.
            return
        package, module = self.folder / parts[0], self.folder / f"{parts[0]}.py"
        for path in left_out_modules.beside(self.folder, parts[0]):
            self._left_out.append(path.name)
        # Python's own order: a package, then a module, then a folder without __init__.py.
        if module.is_file() and not (package / "__init__.py").is_file():
            self._add(module)
        elif package.is_dir():
            if not (package / "__init__.py").is_file() and self._installed(parts[0]):
                if any(package.glob("*.py")):
                    self._shadowed.append(parts[0])
                return
            real = Path(os.path.realpath(package))
            named = any(path.startswith(f"{parts[0]}/") for path in self.allowed)
            if not named and self._boundary.is_outside(real):
                raise self._outside_error(parts[0], real)
            # The whole package is delivered: imports by computed names work too.
            for file in files.walk(package):
                if file.suffix == ".py" and not file.is_dir():
                    self._add_package_file(file, parts[0])
                elif left_out_modules.is_one(file):
                    self._left_out.append(file.relative_to(self.folder).as_posix())

    def _installed(self, name: str) -> bool:
        """Return whether Python finds a module or package of this name outside the folder.

        Python prefers it to a folder without ``__init__.py``: a folder ``datasets`` with data does
        not hide the installed package ``datasets``.
        """
        here = self.folder.absolute()
        path = [e for e in sys.path if isinstance(e, str) and Path(e).absolute() != here]
        for finder in sys.meta_path:
            try:
                found = finder.find_spec(name, path if finder is PathFinder else None)
            except Exception:  # a third party's finder
                _log.warning("%r cannot look for %s", finder, name, exc_info=True)
                continue
            if found is not None and found.origin is not None:
                return True
        return False

    def _add_package_file(self, file: Path, package: str) -> None:
        path = file.relative_to(self.folder)
        if origin := self._ignore_files.excluded_by(path.as_posix(), named=package):
            name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            self._excluded[name] = file, origin
        else:
            self._add(file)

    def _add(self, file: Path) -> None:
        path = file.relative_to(self.folder).as_posix()
        if path in self.modules:
            return
        try:
            with HeldFile(file) as held:
                if path not in self.allowed:
                    self._check(path, file, held)
                with held.open() as opened:
                    data = opened.read()
        except OSError as error:
            raise _read_error(path, error) from None
        self.modules[path] = SourceFile(path, origin=held.real, size=len(data), code=data)
        self._queue.append((data, PurePosixPath(path).parts[:-1]))

    def _check(self, path: str, file: Path, held: HeldFile) -> None:
        if self._boundary.is_outside(held.real):
            raise self._outside_error(path, held.real)
        if secret := secret_files.reason(file, held):
            raise SourceError(
                f"the code imports {visible(path)}, which cannot be delivered: {secret}.",
                f"Rename the module. To include it anyway, write %files=!{quote(path)}.",
            )

    def _outside_error(self, path: str, real: Path) -> SourceError:
        return SourceError(
            f"the code imports {visible(path)}, which leads to {visible(str(real))}, outside of "
            f"{visible(str(self._boundary.top))}.",
            f"Copy it into the folder of your code, or write %files=!{quote(path)} to include it "
            "anyway.",
        )


def _read_error(path: str, error: OSError) -> SourceError:
    return SourceError(
        f"{visible(path)}, which the code imports, cannot be read: {error.strerror}.",
        "Fix its permissions, or remove the import.",
    )
