"""Finds the files that ``%files`` names: files, folders with all in them, patterns.

Of a folder stays at home what ``.gitignore`` and its like say; what holds passwords or keys is
refused. A ``!`` before a word takes it all the same.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery import secret_files
from ciao_kernel.delivery.ignore_files import Home
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.model import SourceFile

CACHES = frozenset(
    {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""What never travels with a folder: others make it anew."""
_ENVIRONMENT = "pyvenv.cfg"
"""Marks the folder of a virtual environment, which is of no use anywhere else."""
_ANYWAY = "!"
_LISTED = 3
_LINK = {
    errno.ENOENT: "it is a link that leads nowhere",
    errno.ELOOP: "it is a link that leads back to itself",
}
_KINDS = (
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What the words name.

    Args:
        files: By their paths.
        notes: A sentence each on what stays at home.
    """

    files: dict[str, SourceFile]
    notes: tuple[str, ...]


def find(words: Sequence[str], folder: Path, entry: str) -> Found:
    """Find what the words of ``%files`` name.

    Args:
        words: In order.
        folder: Where the user works. Of what is outside, only what a link in it names travels.
        entry: File name of the program, which is none of them.

    Raises:
        SpecError: A word names nothing, or something that cannot travel.
        SourceError: A ``.gitignore`` cannot be read.
    """
    if not words:  # then nothing of the folder needs to be looked at
        return Found({}, ())
    search = _Search(folder, entry)
    for word in words:
        search.take(word)
    return Found(search.files, tuple(search.notes()))


def walk(top: Path) -> Iterator[Path]:
    """All files below a folder that can be read, without caches; links to folders stay out."""
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
    """One search, and what it has found.

    Args:
        folder: Where the user works.
        entry: File name of the program.
    """

    folder: Path
    entry: str
    files: dict[str, SourceFile] = field(default_factory=dict)
    _stay: dict[str, list[str]] = field(default_factory=dict)
    """What was left out, by the file that says so."""
    _links: list[str] = field(default_factory=list)
    _environments: dict[Path, bool] = field(default_factory=dict)
    """Whether a folder is a virtual environment."""

    def __post_init__(self) -> None:
        self._home = Home(self.folder)
        self._origin = ""

    def take(self, word: str) -> None:
        """Find what one word names."""
        anyway = word.startswith(_ANYWAY)
        pattern = word.removeprefix(_ANYWAY)
        relative = PurePosixPath(pattern)
        if not pattern.strip():
            raise _refused("an empty name", "there is no such file")
        if relative.is_absolute() or ".." in relative.parts or pattern.startswith("~"):
            raise SpecError(
                f"%files cannot take {pattern}: it is outside the notebook's folder, "
                f"{self.folder}.",
                "Copy the file into that folder, or link to it there.",
                directive="files",
            )
        try:
            exact = _there(self.folder / relative)
            tops = [self.folder / relative] if exact else self._glob(relative)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _refused(pattern, reason or "it is no pattern") from None
        if not tops:
            raise SpecError(
                f"%files names {pattern}, and there is nothing of that name in {self.folder}.",
                self._nearest(pattern),
                directive="files",
            )
        # What is written out in full is wanted; what a pattern matches may be by chance.
        named = str(relative) if exact else _written(relative)
        self._origin, taken = "", 0
        alone = exact and not tops[0].is_dir()
        going = [top for top in tops if alone or not self._in_environment(top)]
        for top in going:
            for file in self._below(top, named, anyway):
                path = file.relative_to(self.folder).as_posix()
                if path != self.entry:
                    self._add(path, file, anyway, alone=alone)
                    taken += 1
                elif exact and file == top:
                    raise SpecError(
                        f"%files names {path}, which is the name of the program itself.",
                        "Leave it out, or rename that file.",
                        directive="files",
                    )
        if self._origin and not taken:
            # Of the whole folder it would take keys and passwords too.
            whole = not pattern.strip("./*")
            raise SpecError(
                f"%files names {pattern}, and all of it stays at home by {self._origin}.",
                "Name the files or folders that are meant."
                if whole
                else f"Write %files={_ANYWAY}{quote(pattern)} to take it all the same.",
                directive="files",
            )
        if not taken and len(going) < len(tops):
            raise _refused(
                pattern,
                "a virtual environment never goes along",
                "Name the packages that are needed: %packages brings them.",
            )
        if exact and not taken and tops[0].is_dir():
            raise _refused(pattern, "there is no file in that folder")

    def notes(self) -> Iterator[str]:
        """What stays at home, a sentence for each reason."""
        for origin, paths in self._stay.items():
            if left := [path for path in dict.fromkeys(paths) if path not in self.files]:
                yield f"left at home by {origin}: {_some(left)}"
        if self._links:
            yield f"links to folders are not followed: {_some(self._links)}"

    def _below(self, top: Path, named: str, anyway: bool) -> Iterator[Path]:
        """A file, or what is in a folder, without caches and what stays at home."""
        if not top.is_dir():
            if not self._stays(top, named, anyway):
                yield top
            return
        if self._stays(top, named, anyway, "/"):
            return
        for parent, folders, names in os.walk(top, onerror=self._closed):
            if _ENVIRONMENT in names:
                folders.clear()
                continue
            inside = []
            for path in (Path(parent, name) for name in sorted(folders) if name not in CACHES):
                if path.is_symlink():
                    self._links.append(path.relative_to(self.folder).as_posix())
                elif not self._stays(path, named, anyway, "/"):
                    inside.append(path.name)
            folders[:] = inside
            for file in (Path(parent, name) for name in sorted(names) if name not in CACHES):
                # The last is Emacs' mark of a file that is open: a link that leads nowhere.
                passing = file.suffix in (".pyc", ".pyo") or file.name.startswith(".#")
                if not passing and not self._stays(file, named, anyway):
                    yield file

    def _in_environment(self, path: Path) -> bool:
        """Whether something is a virtual environment, or lies in one."""
        above = [self.folder / one for one in path.relative_to(self.folder).parents]
        return any(map(self._is_environment, (path, *above[:-1])))

    def _is_environment(self, folder: Path) -> bool:
        if folder not in self._environments:
            self._environments[folder] = os.access(folder / _ENVIRONMENT, os.F_OK)
        return self._environments[folder]

    def _stays(self, path: Path, named: str, anyway: bool, end: str = "") -> bool:
        """Whether something is left out; it is kept for a note."""
        if anyway:
            return False
        name = path.relative_to(self.folder).as_posix()
        if origin := self._home.keeps(name, folder=bool(end), named=named):
            self._origin = origin
            self._stay.setdefault(origin, []).append(name + end)
        return bool(origin)

    def _closed(self, error: OSError) -> None:
        path = Path(str(error.filename)).relative_to(self.folder).as_posix()
        raise _refused(path, error.strerror or "it cannot be read")

    def _glob(self, pattern: PurePosixPath) -> list[Path]:
        """What a pattern matches; as in a shell, hidden files only where it says so."""
        if not any(character in str(pattern) for character in "*?["):
            return []
        hidden = any(part.startswith(".") for part in pattern.parts)
        found = []
        for path in sorted(self.folder.glob(str(pattern))):
            parts = path.relative_to(self.folder).parts
            secret = not hidden and any(part.startswith(".") for part in parts)
            if path.exists() and not secret and CACHES.isdisjoint(parts):
                found.append(path)
        return found

    def _add(self, path: str, file: Path, anyway: bool, *, alone: bool) -> None:
        hint = "Fix it, or leave it out" + ("." if alone else ": a line in .gitignore does.")
        try:
            path.encode()
        except UnicodeEncodeError:
            raise _refused(path, "its name is no UTF-8", "Rename it, or leave it out.") from None
        try:
            known = file.stat()
            if not stat.S_ISREG(known.st_mode):
                kind = next((name for is_it, name in _KINDS if is_it(known.st_mode)), "")
                reason = "it is neither a file nor a folder" + (f" but a {kind}" if kind else "")
                raise _refused(path, reason, hint)
            secret = secret_files.reason(file)
        except OSError as error:
            link = _LINK.get(error.errno or 0) if file.is_symlink() else None
            raise _refused(path, link or error.strerror or str(error), hint) from None
        if secret and not anyway:
            raise _refused(
                path,
                secret,
                f"If it is meant, write %files={_ANYWAY}{quote(path)}"
                + ("." if alone else "; a line in .gitignore leaves it out.")
                + " On a cluster, %envsecret brings passwords.",
            )
        self.files.setdefault(path, SourceFile(path, origin=file, size=known.st_size))

    def _nearest(self, pattern: str) -> str:
        parent = (self.folder / pattern).parent
        try:
            names = [entry.name for entry in parent.iterdir()]
        except OSError:
            names = []
        near = difflib.get_close_matches(Path(pattern).name, names, n=1)
        if near:
            return f"Did you mean {(PurePosixPath(pattern).parent / near[0]).as_posix()}?"
        return "Paths are relative to the folder of the notebook."


def _there(path: Path) -> bool:
    """Whether there is something, were it a link to nowhere; OSError where no path is so long."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _written(pattern: PurePosixPath) -> str:
    """The folder that a pattern writes out before its first sign: ``data`` of ``data/*.csv``."""
    parts: list[str] = []
    for part in pattern.parts:
        if any(character in part for character in "*?["):
            break
        parts.append(part)
    return "/".join(parts)


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return ", ".join(map(shown, paths[:_LISTED])) + more


def shown(path: str) -> str:
    """Return a path for a message, whatever bytes it has."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _refused(path: str, reason: str, hint: str = "Fix it, or leave it out.") -> SpecError:
    return SpecError(f"%files cannot take {shown(path)}: {reason}.", hint, directive="files")
