"""Files that say what stays at home: ``.gitignore``, ``.dockerignore`` and ``.s2iignore``.

Git's patterns are one file's of each folder, and count where they stand; Docker's know ``**`` and
count for what lies below them; those of source-to-image are Go's ``filepath.Match`` on whole paths:
https://git-scm.com/docs/gitignore, https://pkg.go.dev/path/filepath#Match
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ciao_kernel.errors import SourceError

_LARGE = 1 << 20
_ITEM = re.compile(r"\[:([^]]*):\]|(\\.|[^\\])(?:-(\\.|[^]\\]))?", re.DOTALL)
"""One of what stands in brackets: ``[:digit:]``, ``a`` or ``a-z``."""
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\r ", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""Git's, which know no letters but those of English."""
_STAR = "[^/]*"
_NOTHING = "(?!)"


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line: what it matches stays, or goes after all (``!``)."""

    stays: bool
    pattern: re.Pattern[str]
    folders: bool = False
    """It means folders alone."""
    text: str = ""
    """What it says, as a path."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """The lines of one file that count for whole paths; the last one that matches decides."""

    rules: tuple[_Rule, ...] = ()
    back: bool = True
    """A line of its own may take back what lies in a folder that stays."""

    def __call__(self, path: str, named: str = "") -> bool:
        """Whether a file stays at home.

        Args:
            path: Of the file, relative and with ``/``.
            named: A folder above it, or itself, that was asked for by name: what a line says of
                that one does not count.
        """
        levels = list(_levels(path, named))
        return self._stays(levels) if self.back else any(self._stays([one]) for one in levels)

    def _stays(self, levels: Sequence[str]) -> bool:
        found = False
        for rule in self.rules:
            if any(map(rule.pattern.fullmatch, levels)):
                found = rule.stays
        return found

    def anyway(self, path: str) -> bool:
        """Whether a line says of this very file that it goes: ``!path``."""
        said = any(rule.text == path and not rule.stays for rule in self.rules)
        return said and not self(path)


class Home:
    """All files of the three kinds that count for a folder, read as they are needed.

    Those of git count from the top of the repository on, the others in the folder alone.

    Args:
        folder: Of the notebook.

    Raises:
        SourceError: One cannot be read; so do all methods.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder = folder.absolute()
        self._whole = [
            (name, read(_text(folder / name)))
            for name, read in ((".dockerignore", docker), (".s2iignore", s2i))
        ]
        self._above = _repository(folder)
        self._rules: dict[Path, tuple[_Rule, ...]] = {}
        self._known: dict[tuple[str, str], str] = {}

    def keeps(self, path: str, *, folder: bool = False, named: str = "") -> str:
        """Which file says that something stays at home; "" where none does.

        Args:
            path: From the notebook's folder on, with ``/``.
            folder: It is one: only git can say of a whole folder that it stays.
            named: A folder above it, or itself, that was asked for by name.
        """
        for level in _levels(path, named):
            if origin := self._git(level, folder or level != path):
                return origin
        for origin, ignored in () if folder else self._whole:
            if ignored(path, named):
                return origin
        return ""

    def _git(self, path: str, folder: bool) -> str:
        """What git says of one path, without those above it."""
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
    """Read a ``.s2iignore``; the file itself goes along."""
    own = _Rule(stays=False, pattern=re.compile(r"\.s2iignore"))
    return Ignored((*_lines(text, deep=False), own), back=False)


def git(text: str) -> tuple[_Rule, ...]:
    """Read a ``.gitignore``: for paths from its folder on, without what is said of those above."""
    found = []
    for raw in text.split("\n"):
        line = re.sub(r"(?<!\\) +$", "", raw.removesuffix("\r"))
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
    """A path after those above it, from below a named one on; none for the folder itself."""
    parts = PurePosixPath(path).parts
    first = len(PurePosixPath(named).parts) if named else 0
    for end in range(first + 1, len(parts) + 1):
        yield "/".join(parts[:end])


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LARGE + 1)
        if len(raw) > _LARGE:  # what its last lines name would travel
            raise OSError(errno.EFBIG, "it is larger than a megabyte")
        return raw.decode(errors="surrogateescape").removeprefix("\ufeff")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
    except OSError as error:
        raise SourceError(
            f"{file}, which says what stays at home, cannot be read: {error.strerror}.",
            "Shorten it." if error.errno == errno.EFBIG else "Fix its permissions.",
        ) from None


def _repository(folder: Path) -> Path:
    """The top of the repository that a folder is in; the folder itself where it is in none."""
    for one in (folder, *folder.parents):
        if (one / ".git").exists():
            return one
    return folder


def _pattern(parts: Sequence[str], deep: bool, no: str = "^") -> re.Pattern[str]:
    """One line as an expression that matches a path; ``no`` are the signs that turn a set round."""
    found = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if deep and part == "**":
            if not last and parts[number + 1] == "**":  # a row of them says no more than one
                continue
            found += ".+" if last else "(?:.*/)?"
            continue
        found += _part(part, no) + ("" if last else "/")
    try:
        return re.compile(found, re.DOTALL)
    except re.error:  # such as [z-a]: it matches nothing
        return re.compile(_NOTHING)


def _part(text: str, no: str) -> str:
    """One name: ``*``, ``?``, ``[a-z]``, ``[^a-z]`` and a backslash before what means itself."""
    found, at = "", 0
    while at < len(text):
        character = text[at]
        if character == "*":
            # A row of them says no more than one, and would take forever.
            found += "" if found.endswith(_STAR) else _STAR
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
    return found


def _inside(text: str, at: int) -> tuple[str, int]:
    """What stands in brackets, "" where it means nothing, and where they close.

    A first one that closes them is one of the set.
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
