"""Find the files that ``%files`` names: files, folders with all their contents, patterns.

Files of a folder that ``.gitignore`` or a similar file excludes are left out. Files that hold
passwords or keys are refused, and links that lead out of the folder
(:mod:`ciao_kernel.delivery.boundary`). A ``!`` before a word includes its files anyway.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery import file_patterns, secret_files
from ciao_kernel.delivery.boundary import Boundary
from ciao_kernel.delivery.file_patterns import CACHES
from ciao_kernel.delivery.held_file import HeldFile
from ciao_kernel.delivery.ignore_files import IgnoreFiles
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.model import SourceFile
from ciao_kernel.redaction import conceal
from ciao_kernel.visible_text import listed, short, visible

_ENVIRONMENT = "pyvenv.cfg"
"""File that marks a virtual environment, which works only in its original place."""
_FORCE_MARK = "!"
_LINK = {
    errno.ENOENT: "it is a broken link",
    errno.ELOOP: "it is a link to itself",
}


@dataclass(frozen=True, slots=True)
class Found:
    """Files that the words name.

    Args:
        files: The files by their paths.
        notes: One sentence for each reason why files were left out.
    """

    files: dict[str, SourceFile]
    notes: tuple[str, ...]


def find(words: Sequence[str], folder: Path, entry: str) -> Found:
    """Find the files that the words of ``%files`` name.

    Args:
        words: The words in order.
        folder: The user's working folder.
        entry: File name of the program, which is never among the files.

    Raises:
        SpecError: A word names nothing, or something that cannot be delivered.
        SourceError: A ``.gitignore`` cannot be read.
    """
    if not words:  # then the folder need not be read
        return Found({}, ())
    search = _Search(folder, entry)
    # "!" first: it also counts for the folder of the file, in `conf !conf/.env`.
    for word in sorted(words, key=lambda word: not word.startswith(_FORCE_MARK)):
        search.take(word)
    return Found(search.files, tuple(search.notes()))


def walk(top: Path) -> Iterator[Path]:
    """Yield the files below a folder, without caches; links to folders are not followed."""
    for parent, folders, names in os.walk(top):
        if _ENVIRONMENT in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in CACHES)
        for name in sorted(names):
            if (file := Path(parent, name)).is_file():
                yield file


@dataclass
class _Search:
    """A search and its results.

    Args:
        folder: The user's working folder.
        entry: File name of the program.
    """

    folder: Path
    entry: str
    files: dict[str, SourceFile] = field(default_factory=dict)
    _stay: dict[str, list[str]] = field(default_factory=dict)
    """Paths that were left out, by the file that excludes them."""
    _links: list[str] = field(default_factory=list)
    _outside: dict[str, Path] = field(default_factory=dict)
    """Paths that lead out of the folder, with the places to which they lead."""
    _environments: dict[Path, bool] = field(default_factory=dict)
    """Results of :meth:`_is_environment` by folder."""

    def __post_init__(self) -> None:
        self._ignore_files = IgnoreFiles(self.folder)
        self._boundary = Boundary.around(self.folder)
        self._origin = ""

    def take(self, word: str) -> None:
        """Find the files that one word names."""
        anyway = word.startswith(_FORCE_MARK)
        pattern = word.removeprefix(_FORCE_MARK)
        relative = PurePosixPath(pattern)
        if not pattern.strip():
            raise _refused("an empty name", "there is no such file")
        if relative.is_absolute() or ".." in relative.parts or pattern.startswith("~"):
            raise SpecError(
                f"%files cannot take {_said(pattern)}: it is outside the notebook's folder, "
                f"{_said(self.folder)}.",
                "Copy the file into that folder, or link to it there and write "
                f"%files={_FORCE_MARK}LINK.",
                directive="files",
            )
        try:
            exact = file_patterns.exists(path := self.folder / relative)
            tops = [path] if exact else file_patterns.matches(self.folder, relative)
        except RecursionError:  # Path.glob needs a call for each folder of a pattern
            raise _refused(f"{pattern[:60]}…", "the pattern has too many folders") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _refused(pattern, reason or "it is not a valid pattern") from None
        if not tops:
            raise SpecError(
                f"%files names {_said(pattern)}, but nothing in {_said(self.folder)} matches it.",
                file_patterns.nearest(self.folder, pattern),
                directive="files",
            )
        # A full path is intended; a match of a pattern may be accidental.
        named = str(relative) if exact else file_patterns.fixed_part(relative)
        self._origin, taken = "", 0
        alone = exact and not tops[0].is_dir()
        going = [top for top in tops if alone or not self._in_environment(top)]
        for top in going:
            for file in self._below(top, named, anyway):
                name = file.relative_to(self.folder).as_posix()
                if name != self.entry:
                    self._add(name, file, anyway, alone=alone)
                    taken += 1
                elif exact and file == top:
                    raise SpecError(
                        f"%files names {_said(name)}, which is the name of the program itself.",
                        "Leave it out, or rename the file.",
                        directive="files",
                    )
        if self._outside:
            raise self._leaving(str(relative), exact=exact)
        if self._origin and not taken:
            # For the whole folder, "!" would include keys and passwords too.
            whole = not pattern.strip("./*")
            raise SpecError(
                f"%files names {_said(pattern)}, but every match is excluded by "
                f"{_said(self._origin)}.",
                "Name the files or folders that you need."
                if whole
                else f"Write %files={_FORCE_MARK}{quote(pattern)} to include it anyway.",
                directive="files",
            )
        if not taken and len(going) < len(tops):
            raise _refused(
                pattern,
                "a virtual environment is never delivered",
                "Name the packages that you need with %packages.",
            )
        if exact and not taken and tops[0].is_dir():
            raise _refused(pattern, "the folder contains no files")

    def notes(self) -> Iterator[str]:
        """Yield one sentence for each reason why files were left out."""
        for origin, paths in self._stay.items():
            if left := [path for path in dict.fromkeys(paths) if path not in self.files]:
                yield f"excluded by {visible(origin)}: {listed(left)}"
        if self._links:
            yield f"links to folders are not followed: {listed(self._links)}"

    def _below(self, top: Path, named: str, anyway: bool) -> Iterator[Path]:
        """Yield a file, or the files in a folder, without caches and excluded files."""
        if not top.is_dir():
            if not self._is_excluded(top, named, anyway):
                yield top
            return
        if self._is_excluded(top, named, anyway, "/"):
            return
        real = Path(os.path.realpath(top))
        if not anyway and self._boundary.leaves(real):  # it may lead to the root: do not search it
            self._outside[top.relative_to(self.folder).as_posix()] = real
            return
        for parent, folders, names in os.walk(top, onerror=self._closed):
            if _ENVIRONMENT in names:
                folders.clear()
                continue
            inside = []
            for path in (Path(parent, name) for name in sorted(folders) if name not in CACHES):
                if path.is_symlink():
                    self._links.append(path.relative_to(self.folder).as_posix())
                elif not self._is_excluded(path, named, anyway, "/"):
                    inside.append(path.name)
            folders[:] = inside
            for file in (Path(parent, name) for name in sorted(names) if name not in CACHES):
                # Emacs marks an open file with a broken link whose name begins with ".#".
                passing = file.suffix in (".pyc", ".pyo") or file.name.startswith(".#")
                if not passing and not self._is_excluded(file, named, anyway):
                    yield file

    def _in_environment(self, path: Path) -> bool:
        """Return whether a path is a virtual environment or is inside one."""
        above = [self.folder / one for one in path.relative_to(self.folder).parents]
        return any(map(self._is_environment, (path, *above[:-1])))

    def _is_environment(self, folder: Path) -> bool:
        if folder not in self._environments:
            self._environments[folder] = os.access(folder / _ENVIRONMENT, os.F_OK)
        return self._environments[folder]

    def _is_excluded(self, path: Path, named: str, anyway: bool, end: str = "") -> bool:
        """Return whether a path is excluded; if it is, record it for a note."""
        if anyway:
            return False
        name = path.relative_to(self.folder).as_posix()
        if origin := self._ignore_files.excluded_by(name, folder=bool(end), named=named):
            self._origin = origin
            self._stay.setdefault(origin, []).append(name + end)
        return bool(origin)

    def _closed(self, error: OSError) -> None:
        path = Path(str(error.filename)).relative_to(self.folder).as_posix()
        raise _refused(path, error.strerror or "it cannot be read")

    def _add(self, path: str, file: Path, anyway: bool, *, alone: bool) -> None:
        hint = "Fix it, or leave it out" + ("." if alone else ": add it to .gitignore.")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise _refused(path, "its name is not UTF-8", "Rename it, or leave it out.") from None
        if path in self.files:
            return
        try:
            with HeldFile(file) as held:
                if not anyway and self._boundary.leaves(held.real):
                    self._outside[path] = held.real
                secret = "" if anyway else _secret(file, held, outside=path in self._outside)
        except OSError as error:
            link = _LINK.get(error.errno or 0) if file.is_symlink() else None
            raise _refused(path, link or error.strerror or str(error), hint) from None
        if secret:
            raise _refused(
                path,
                secret,
                f"To include it anyway, write %files={_FORCE_MARK}{quote(path)}"
                + ("." if alone else "; to exclude it, add it to .gitignore.")
                + " On a cluster, use %envsecret for passwords.",
            )
        self.files[path] = SourceFile(path, origin=held.real, size=held.size)

    def _leaving(self, word: str, *, exact: bool) -> SpecError:
        """Return the error for the paths of a word that lead out of the folder."""
        paths = list(self._outside)
        place = f"to {_said(self._outside[paths[0]])}, " if len(paths) == 1 else ""
        verb = "it leads" if len(paths) == 1 else "they lead"
        one = paths[0] if len(paths) == 1 else word if exact else ""
        anyway = f"%files={_FORCE_MARK}{quote(one)}" if one else f"a {_FORCE_MARK} before each"
        return SpecError(
            f"%files cannot take {listed(paths)}: {verb} {place}outside of "
            f"{_said(self._boundary.top)}.",
            f"Copy the data into the notebook's folder, or write {anyway} to include it anyway.",
            directive="files",
        )


def _secret(file: Path, held: HeldFile, *, outside: bool) -> str:
    try:
        return secret_files.reason(file, held)
    except PermissionError:
        if outside:  # the better reason to refuse it
            return ""
        raise


def _said(path: str | Path) -> str:
    return visible(short(conceal(str(path))))


def _refused(path: str, reason: str, hint: str = "Fix it, or leave it out.") -> SpecError:
    return SpecError(f"%files cannot take {_said(path)}: {reason}.", hint, directive="files")
