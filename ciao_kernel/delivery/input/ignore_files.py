"""Read the files that exclude others: ``.gitignore``, ``.dockerignore`` and ``.s2iignore``.

Each folder may have a ``.gitignore``, whose patterns are relative to that folder. Docker's patterns
support ``**`` and also exclude everything below a match. Those of source-to-image are matched
against whole paths by Go's ``filepath.Match``:
https://git-scm.com/docs/gitignore, https://pkg.go.dev/path/filepath#Match
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery.input.held_file import HeldFile
from ciao_kernel.errors import SourceError
from ciao_kernel.visible_text import visible

_LARGE = 1 << 20
_ITEM = re.compile(r"\[:([^]]*):\]|(\\.|[^\\])(?:-(\\.|[^]\\]))?", re.DOTALL)
"""One item in brackets: ``[:digit:]``, ``a`` or ``a-z``."""
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\r ", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""Git's character classes, which contain only English letters."""
_STAR, _FIRST = "[^/]*", "[^/]*?"
_NOTHING = "(?!)"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line: it excludes its matches, or includes them again (``!``)."""

    stays: bool
    pattern: re.Pattern[str]
    folders: bool = False
    """True if the line matches only folders."""
    text: str = ""
    """The line as a path."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """The lines of a file that match whole paths; the last matching line decides."""

    rules: tuple[_Rule, ...] = ()
    back: bool = True
    """True if a ``!`` line can include a path inside an excluded folder."""

    def __call__(self, path: str, named: str = "") -> bool:
        """Return whether a file is excluded.

        Args:
            path: Path of the file, relative and with ``/``.
            named: The file, or a folder above it, if the user named it: lines that match it do
                not count.
        """
        levels = list(_levels(path, named))
        return (
            self._is_excluded(levels)
            if self.back
            else any(self._is_excluded([one]) for one in levels)
        )

    def _is_excluded(self, levels: Sequence[str]) -> bool:
        found = False
        for rule in self.rules:
            if any(map(rule.pattern.fullmatch, levels)):
                found = rule.stays
        return found

    def anyway(self, path: str) -> bool:
        """Return whether a line includes exactly this file: ``!path``."""
        said = any(rule.text == path and not rule.stays for rule in self.rules)
        return said and not self(path)


class IgnoreFiles:
    """All ignore files of the three kinds that apply to a folder, read when they are needed.

    Those of git apply from the top of the repository down, the others only in the folder itself.

    Args:
        folder: Folder of the notebook.

    Raises:
        SourceError: A file cannot be read; all methods raise it too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder = folder.absolute()
        self._whole = [
            (name, read(_text(folder / name)))
            for name, read in ((".dockerignore", docker), (".s2iignore", s2i))
        ]
        self._above = repository(folder)
        self._rules: dict[Path, tuple[_Rule, ...]] = {}
        self._known: dict[tuple[str, str], str] = {}

    def excluded_by(self, path: str, *, folder: bool = False, named: str = "") -> str:
        """Return the ignore file that excludes a path; "" if none does.

        Args:
            path: Path relative to the notebook's folder, with ``/``.
            folder: The path is a folder: only git can exclude a whole folder.
            named: The path, or a folder above it, if the user named it.
        """
        for level in _levels(path, named):
            if origin := self._git(level, folder or level != path):
                return origin
        for origin, ignored in () if folder else self._whole:
            if ignored(path, named):
                return origin
        return ""

    def _git(self, path: str, folder: bool) -> str:
        """Return the ``.gitignore`` that excludes a path itself, not a folder above it."""
        asked = (path, "/" if folder else "")
        if asked not in self._known:
            self._known[asked] = self._asked(path, folder)
        return self._known[asked]

    def _asked(self, path: str, folder: bool) -> str:
        place = self._folder / path
        for above in place.parents:  # the nearest file counts first
            for rule in reversed(self._lines(above)):
                relative = place.relative_to(above).as_posix()
                if (folder or not rule.folders) and rule.pattern.fullmatch(relative):
                    inside = above.is_relative_to(self._folder)
                    file = above / ".gitignore"
                    name = file.relative_to(self._folder).as_posix() if inside else str(file)
                    return name if rule.stays else ""
            if above == self._above:
                return ""
        return ""

    def _lines(self, folder: Path) -> tuple[_Rule, ...]:
        if folder not in self._rules:
            self._rules[folder] = git(_text(folder / ".gitignore"))
        return self._rules[folder]


def docker(text: str) -> Ignored:
    """Read a ``.dockerignore``."""
    return Ignored(tuple(_lines(text, deep=True)))


def s2i(text: str) -> Ignored:
    """Read a ``.s2iignore``; the file itself is never excluded."""
    own = _Rule(stays=False, pattern=re.compile(r"\.s2iignore"))
    return Ignored((*_lines(text, deep=False), own), back=False)


def git(text: str) -> tuple[_Rule, ...]:
    """Read a ``.gitignore``; its rules match a path relative to its folder, not what is below."""
    found = []
    for raw in text.split("\n"):
        line = raw.removesuffix("\r")
        bare = line.rstrip(" ")
        line = f"{bare} " if bare.endswith("\\") and bare != line else bare
        if not line or line.startswith("#"):
            continue
        stays = not line.startswith("!")
        line = line if stays else line[1:]
        bare = line.removesuffix("/")
        parts = bare.removeprefix("/").split("/")
        if "/" not in bare and parts != [""]:
            parts = ["**", *parts]
        if parts != [""]:
            found.append(_Rule(stays, _pattern(parts, True, "^!"), line.endswith("/")))
    return tuple(found)


def _lines(text: str, *, deep: bool) -> Iterator[_Rule]:
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        parts = PurePosixPath(line.lstrip("!").strip().lstrip("/")).parts
        if parts := tuple(part for part in parts if part != "."):
            stays = not line.startswith("!")
            yield _Rule(stays, _pattern(parts, deep), text="/".join(parts))


def _levels(path: str, named: str = "") -> Iterator[str]:
    """Yield the folders above a path that are below ``named``, then the path; nothing for "."."""
    parts = PurePosixPath(path).parts
    first = len(PurePosixPath(named).parts) if named else 0
    for end in range(first + 1, len(parts) + 1):
        yield "/".join(parts[:end])


def _text(file: Path) -> str:
    try:
        with HeldFile(file) as held, held.open() as opened:
            raw = opened.read(_LARGE + 1)
        if len(raw) > _LARGE:  # without its last lines, too little would be excluded
            raise OSError(errno.EFBIG, "it is larger than a megabyte")
        return raw.decode(errors="surrogateescape").removeprefix("\ufeff")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
    except OSError as error:
        raise SourceError(
            f"the ignore file {visible(str(file))} cannot be read: {error.strerror}.",
            "Shorten it." if error.errno == errno.EFBIG else "Fix its permissions.",
        ) from None


def repository(folder: Path) -> Path:
    """Return the top folder of the repository around a folder; the folder itself if none.

    Args:
        folder: An absolute path.
    """
    for one in (folder, *folder.parents):
        if (one / ".git").exists():
            return one
    return folder


def _pattern(parts: Sequence[str], deep: bool, no: str = "^") -> re.Pattern[str]:
    """Return the regular expression of a line; ``no`` has the characters that negate a set.

    Lines may be foreign, so what is between two ``**`` is matched where it comes first, and never
    tried again behind that place: another ``**`` follows, which takes any folders.
    """
    found, start = "", -1  # where the last ** begins
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if deep and part == "**":
            if not last and parts[number + 1] == "**":  # several mean the same as one
                continue
            if start >= 0:
                found = f"{found[:start]}(?>{found[start:]})"
            start = len(found)
            found += ".+" if last else "(?:.*?/)??"
            continue
        found += _part(part, no) + ("" if last else "/")
    try:
        return re.compile(found, re.DOTALL)
    except re.error:  # such as [z-a]: it matches nothing
        return re.compile(_NOTHING)


def _part(text: str, no: str) -> str:
    """Translate a name with ``*``, ``?``, ``[a-z]``, ``[^a-z]`` and backslash escapes.

    What is between two stars is matched where it comes first: the second star takes the rest.
    """
    before, found, at = "", "", 0  # up to the last star, and from there on
    while at < len(text):
        character = text[at]
        if character == "*":
            if found.startswith(_STAR) and found != _STAR:
                before, found = f"{before}(?>{_FIRST}{found[len(_STAR) :]})", _STAR
            elif found != _STAR:  # several mean the same as one
                before, found = found, _STAR
        elif character == "?":
            found += "[^/]"
        elif character == "[":
            turned = text.startswith(tuple(no), at + 1)
            inside, at = _inside(text, at + 1 + turned)
            found += f"(?!/)[{'^' * turned}{inside}]" if inside else _NOTHING
        elif character == "\\":
            if at + 1 == len(text):
                return _NOTHING
            at += 1
            found += re.escape(text[at])
        else:
            found += re.escape(character)
        at += 1
    return before + found


def _inside(text: str, at: int) -> tuple[str, int]:
    """Return the content of brackets, "" if it is invalid, and the place of the closing bracket.

    A closing bracket in the first place belongs to the set.
    """
    found = ""
    while not found or not text.startswith("]", at):
        item = _ITEM.match(text, at)
        if not item or item[1] not in (None, *_CLASSES):
            return "", len(text)
        name, first, last = item.groups()
        ends = [re.escape(end[-1]) for end in (first, last) if end]
        found += _CLASSES[name] if name else "-".join(ends)
        at = item.end()
    return found, at
