"""Find the files that ``%files`` names: files, folders with all their contents, patterns.

Files of a folder that ``.gitignore`` or a similar file excludes are left out. Files that hold
passwords or keys are refused, and links that lead out of the folder
(:mod:`ciao_kernel.delivery.input.boundary`). A ``!`` before a word includes its files anyway.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery.input import file_patterns, secret_files
from ciao_kernel.delivery.input.boundary import Boundary
from ciao_kernel.delivery.input.file_patterns import CACHES
from ciao_kernel.delivery.input.held_file import HeldFile
from ciao_kernel.delivery.input.ignore_files import IgnoreFiles
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.model import SourceFile
from ciao_kernel.redaction import conceal
from ciao_kernel.visible_text import listed, short, visible

_ENVIRONMENT_MARK = "pyvenv.cfg"
"""File that marks a virtual environment, which works only in its original place."""
_FORCE_MARK = "!"
_LINK_ERRORS = {
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
        search.add_word(word)
    return Found(search.files, tuple(search.notes()))


def walk(top: Path) -> Iterator[Path]:
    """Yield the files below a folder, without caches, and links to folders, not followed."""
    for parent, folders, names in os.walk(top):
        if _ENVIRONMENT_MARK in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if name not in CACHES)
        yield from (path for name in folders if (path := Path(parent, name)).is_symlink())
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
    _excluded: dict[str, list[str]] = field(default_factory=dict)
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

    def add_word(self, word: str) -> None:
        """Find the files that one word names."""
        force = word.startswith(_FORCE_MARK)
        pattern = word.removeprefix(_FORCE_MARK)
        relative = PurePosixPath(pattern)
        matches, exact = self._matches(pattern, relative)
        # A full path is intended; a match of a pattern may be accidental.
        named = str(relative) if exact else file_patterns.fixed_part(relative)
        self._origin, count = "", 0
        is_named = exact and not matches[0].is_dir()
        included = [match for match in matches if is_named or not self._in_environment(match)]
        for match in included:
            for file in self._below(match, named, force):
                name = file.relative_to(self.folder).as_posix()
                if name != self.entry:
                    self._add_file(name, file, force, is_named=is_named)
                    count += 1
                elif exact and file == match:
                    raise SpecError(
                        f"%files names {_shown(name)}, which is the name of the program itself.",
                        "Leave it out, or rename the file.",
                        directive="files",
                    )
        if self._outside:
            raise self._outside_error(str(relative), exact=exact)
        if self._origin and not count:
            # For the whole folder, "!" would include keys and passwords too.
            whole = not pattern.strip("./*")
            raise SpecError(
                f"%files names {_shown(pattern)}, but every match is excluded by "
                f"{_shown(self._origin)}.",
                "Name the files or folders that you need."
                if whole
                else f"Write %files={_FORCE_MARK}{quote(pattern)} to include it anyway.",
                directive="files",
            )
        if not count and len(included) < len(matches):
            raise _refused(
                pattern,
                "a virtual environment is never delivered",
                "Name the packages that you need with %packages.",
            )
        if exact and not count and matches[0].is_dir():
            raise _refused(pattern, "the folder contains no files")

    def _matches(self, pattern: str, relative: PurePosixPath) -> tuple[list[Path], bool]:
        """Return what a pattern matches, and whether it is a plain path, not a pattern.

        Raises:
            SpecError: It matches nothing, or is no pattern of this folder.
        """
        if not pattern.strip():
            raise _refused("an empty name", "there is no such file")
        if relative.is_absolute() or ".." in relative.parts or pattern.startswith("~"):
            raise SpecError(
                f"%files cannot take {_shown(pattern)}: it is outside the folder of your code, "
                f"{_shown(self.folder)}.",
                "Copy the file into that folder, or link to it there and write "
                f"%files={_FORCE_MARK}LINK.",
                directive="files",
            )
        try:
            exact = file_patterns.exists(path := self.folder / relative)
            matches = [path] if exact else file_patterns.matches(self.folder, relative)
        except RecursionError:  # Path.glob needs a call for each folder of a pattern
            raise _refused(f"{pattern[:60]}…", "the pattern has too many folders") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _refused(pattern, reason or "it is not a valid pattern") from None
        if not matches:
            raise SpecError(
                f"%files names {_shown(pattern)}, but nothing in {_shown(self.folder)} matches it.",
                file_patterns.nearest(self.folder, pattern),
                directive="files",
            )
        return matches, exact

    def notes(self) -> Iterator[str]:
        """Yield one sentence for each reason why files were left out."""
        for origin, paths in self._excluded.items():
            if left := [path for path in dict.fromkeys(paths) if path not in self.files]:
                yield f"excluded by {visible(origin)}: {listed(left)}"
        if self._links:
            yield f"links to folders are not followed: {listed(self._links)}"

    def _below(self, top: Path, named: str, force: bool) -> Iterator[Path]:
        """Yield a file, or the files in a folder, without caches and excluded files."""
        if not top.is_dir():
            if not self._is_excluded(top, named, force):
                yield top
            return
        if self._is_excluded(top, named, force, "/"):
            return
        real = Path(os.path.realpath(top))
        # It may lead to the root, which must not be searched.
        if not force and self._boundary.is_outside(real):
            self._outside[top.relative_to(self.folder).as_posix()] = real
            return
        for parent, folders, names in os.walk(top, onerror=self._raise_unreadable):
            if _ENVIRONMENT_MARK in names:
                folders.clear()
                continue
            subfolders = []
            for path in (Path(parent, name) for name in sorted(folders) if name not in CACHES):
                if path.is_symlink():
                    self._links.append(path.relative_to(self.folder).as_posix())
                elif not self._is_excluded(path, named, force, "/"):
                    subfolders.append(path.name)
            folders[:] = subfolders
            for file in (Path(parent, name) for name in sorted(names) if name not in CACHES):
                # Emacs marks an open file with a broken link whose name begins with ".#".
                temporary = file.suffix in (".pyc", ".pyo") or file.name.startswith(".#")
                if not temporary and not self._is_excluded(file, named, force):
                    yield file

    def _in_environment(self, path: Path) -> bool:
        """Return whether a path is a virtual environment or is inside one."""
        above = [self.folder / one for one in path.relative_to(self.folder).parents]
        return any(map(self._is_environment, (path, *above[:-1])))

    def _is_environment(self, folder: Path) -> bool:
        if folder not in self._environments:
            self._environments[folder] = os.access(folder / _ENVIRONMENT_MARK, os.F_OK)
        return self._environments[folder]

    def _is_excluded(self, path: Path, named: str, force: bool, suffix: str = "") -> bool:
        """Return whether a path is excluded; if it is, record it for a note."""
        if force:
            return False
        name = path.relative_to(self.folder).as_posix()
        if origin := self._ignore_files.excluded_by(name, folder=bool(suffix), named=named):
            self._origin = origin
            self._excluded.setdefault(origin, []).append(name + suffix)
        return bool(origin)

    def _raise_unreadable(self, error: OSError) -> None:
        path = Path(str(error.filename)).relative_to(self.folder).as_posix()
        raise _refused(path, error.strerror or "it cannot be read")

    def _add_file(self, path: str, file: Path, force: bool, *, is_named: bool) -> None:
        hint = "Fix it, or leave it out" + ("." if is_named else ": add it to .gitignore.")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise _refused(path, "its name is not UTF-8", "Rename it, or leave it out.") from None
        if path in self.files:
            return
        try:
            with HeldFile(file) as held:
                if not force and self._boundary.is_outside(held.real):
                    self._outside[path] = held.real
                secret = "" if force else _secret(file, held, outside=path in self._outside)
        except OSError as error:
            link = _LINK_ERRORS.get(error.errno or 0) if file.is_symlink() else None
            raise _refused(path, link or error.strerror or str(error), hint) from None
        if secret:
            raise _refused(
                path,
                secret,
                f"To include it anyway, write %files={_FORCE_MARK}{quote(path)}"
                + ("." if is_named else "; to exclude it, add it to .gitignore.")
                + " On a cluster, use %envsecret for passwords.",
            )
        self.files[path] = SourceFile(path, origin=held.real, size=held.size)

    def _outside_error(self, word: str, *, exact: bool) -> SpecError:
        """Return the error for the paths of a word that lead out of the folder."""
        paths = list(self._outside)
        place = f"to {_shown(self._outside[paths[0]])}, " if len(paths) == 1 else ""
        verb = "it leads" if len(paths) == 1 else "they lead"
        path = paths[0] if len(paths) == 1 else word if exact else ""
        forced = f"%files={_FORCE_MARK}{quote(path)}" if path else f"a {_FORCE_MARK} before each"
        return SpecError(
            f"%files cannot take {listed(paths)}: {verb} {place}outside of "
            f"{_shown(self._boundary.top)}.",
            f"Copy the data into the folder of your code, or write {forced} to include it anyway.",
            directive="files",
        )


def _secret(file: Path, held: HeldFile, *, outside: bool) -> str:
    try:
        return secret_files.reason(file, held)
    except PermissionError:
        if outside:  # the better reason to refuse it
            return ""
        raise


def _shown(path: str | Path) -> str:
    return visible(short(conceal(str(path))))


def _refused(path: str, reason: str, hint: str = "Fix it, or leave it out.") -> SpecError:
    return SpecError(f"%files cannot take {_shown(path)}: {reason}.", hint, directive="files")
