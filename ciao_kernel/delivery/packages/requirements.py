"""Requirements of a cell's directives for pip, for a local environment or an image."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ciao_kernel.delivery.input import secret_files
from ciao_kernel.delivery.input.boundary import Boundary
from ciao_kernel.delivery.input.held_file import HeldFile
from ciao_kernel.delivery.packages import package_line
from ciao_kernel.delivery.packages.package_line import shown
from ciao_kernel.errors import SourceError, SpecError, UsageError
from ciao_kernel.model import BuildSpec
from ciao_kernel.redaction import mask

_LARGE = 1 << 20
_COMMENT = re.compile(r"(?:^|\s)#.*")
_REMARK = re.compile(r"\s*#")
_OPTION = re.compile(r"-[A-Za-z]|--[a-z]")
_INDEX = ("-i", "--index-url")


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requested packages, including those that requirements files name.

    Args:
        lines: Lines of a complete requirements file, which names no other file.
        constraints: Lines of a constraints file, in the same form.
        label: The request in a form for users.
        index: Address of the package index; "" means pip's own setting.
        places: Lines that come from a file, each with its place there.
    """

    lines: tuple[str, ...]
    constraints: tuple[str, ...]
    label: str
    index: str
    places: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """Cache key of the request."""
        used = {name: os.environ.get(name) for name in self.variables}
        return json.dumps([self.lines, self.constraints, self.index, *([used] if used else [])])

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of variables of the environment that pip replaces, sorted."""
        texts = (*self.lines, *self.constraints, self.index)
        return tuple(sorted({name for one in texts for name in package_line.variables(one)}))

    @property
    def options(self) -> tuple[str, ...]:
        """The lines that set options of pip."""
        return tuple(line for line in self.lines if line.startswith("-"))

    @property
    def names_index(self) -> bool:
        """True if the cell or its file names the index, or rules out any."""
        return bool(self.index) or any(
            _option(line)[0] in (*_INDEX, "--no-index") for line in self.options
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """The lines that name packages."""
        return tuple(line for line in self.lines if not line.startswith("-"))

    @property
    def with_credentials(self) -> tuple[str, ...]:
        """Lines that contain a user or a password: the place of each line, or its masked text."""
        places = dict(self.places)
        found = [line for line in (*self.lines, *self.constraints) if mask(line) != line]
        return tuple(places.get(line) or mask(line) for line in found)

    def place(self, package: str) -> str:
        """Return the place that requests a package: ``requirements.txt, line 4``; "" if none.

        Args:
            package: The package as :func:`package_line.wish` or pip names it.
        """
        wanted = package_line.name(package)
        for line, place in self.places:
            if mask(line) == package or (wanted and package_line.name(line) == wanted):
                return place
        return ""

    def arguments(self, folder: Path) -> list[str]:
        """Write the files for ``pip install`` to a folder, and return the arguments for them."""
        wanted, held = folder / "requirements.txt", folder / "constraints.txt"
        wanted.write_text("".join(f"{line}\n" for line in self.lines))
        held.write_text("".join(f"{line}\n" for line in self.constraints))
        return ["-r", str(wanted), *(["-c", str(held)] if self.constraints else [])]


def check(wanted: BuildSpec, work: Path) -> None:
    """Check the packages of a cell before its job is made; a dry run finds all mistakes too.

    Args:
        wanted: The directives.
        work: As for :func:`read`.

    Raises:
        SpecError: As :func:`read`, with the directive and the wrong word.
        SourceError: The same, if the line of the cell would show a password.
    """
    for word in wanted.packages:
        try:
            package_line.check(word, "%packages", strict=True)
        except SourceError as error:
            raise _located(error, "packages", word) from None
    if wanted.requirements:
        try:
            read(wanted, work)
        except SourceError as error:
            raise _located(error, "requirements", wanted.requirements) from None


def _located(error: SourceError, directive: str, word: str) -> UsageError:
    if package_line.shows_secret(word):
        return error
    return SpecError(error.message, error.hint, directive=directive, word=word)


def read(wanted: BuildSpec, work: Path) -> Requirements:
    """Return the packages that a cell asks for; all requirements files are read now.

    Args:
        wanted: The directives.
        work: The user's working folder: the file's path is relative to it.

    Raises:
        SourceError: A file cannot be read, is not beside the notebook, or is no requirements
            file; or a line names something that only this machine has.
    """
    for word in wanted.packages:
        package_line.check(word, "%packages", strict=True)
    lines, constraints = list(wanted.packages), list[str]()
    label, places = list(wanted.packages), list[tuple[str, str]]()
    if wanted.requirements:
        label.append(wanted.requirements)
        path = PurePosixPath(wanted.requirements)
        if path.is_absolute() or ".." in path.parts or wanted.requirements.startswith("~"):
            raise SourceError(
                f"%requirements names {shown(wanted.requirements)}, which is outside the "
                f"folder of your code, {work}.",
                "Copy it there.",
            )
        file = work / path
        files = _Files(Boundary.around(work))
        try:
            found = list(files.flat(file, wanted.requirements, False))
        except (RuntimeError, ValueError) as error:
            why = "no file can have this name"
            if isinstance(error, RuntimeError):  # of Path.resolve, until Python 3.12
                why = "it is a link to itself"
            raise SourceError(
                f"{shown(wanted.requirements)} cannot be read: {why}.",
                "%requirements names a file next to your code.",
            ) from None
        for line, place, holds in found:
            (constraints if holds else lines).append(line)
            places.append((line, place))
    index = wanted.pip_index or ""
    if index:  # it replaces the index of the file
        lines = [line for line in lines if _option(line)[0] not in _INDEX]
    return Requirements(tuple(lines), tuple(constraints), " ".join(label), index, tuple(places))


class _Files:
    """Reads a requirements file and the files that it names, each once.

    Args:
        boundary: The folders in which the files must be.
    """

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._seen: set[tuple[Path, bool]] = set()

    def flat(self, file: Path, name: str, holds: bool) -> Iterator[tuple[str, str, bool]]:
        """Yield the lines of a file and of files that it names.

        Args:
            file: The file.
            name: Its name for messages.
            holds: The file is a constraints file.

        Yields:
            The text of a line, its place, and True for a constraint.
        """
        if (key := (file.resolve(), holds)) in self._seen:
            return
        self._seen.add(key)
        for number, line in _lines(self._text(file, name)):
            option, value = _option(line)
            place = f"{shown(name)}, line {number}"
            if option in ("-r", "--requirement", "-c", "--constraint"):
                if "://" in value:
                    raise SourceError(
                        f"{place}: requirements files are read only from this machine.",
                        "Download it into the folder of your code.",
                    )
                value = " ".join(_words(value, place))
                yield from self.flat(file.parent / value, value, holds or "c" in option[:3])
            elif option in ("-e", "--editable"):
                raise _editable(shown(value) or "it", place, package_line.remote(value))
            elif option in ("-f", "--find-links") and "://" not in value:
                folder, *more = _words(value, place)
                words = ["--find-links", str((file.parent / folder).resolve()), *more]
                yield shlex.join(words), place, False
            elif option:  # pip honours options of a constraints file too
                yield line, place, False
            else:
                package_line.check(line, place)
                yield line, place, holds

    def _text(self, file: Path, name: str) -> str:
        why = ""
        try:
            with HeldFile(file) as held:
                if self._boundary.is_outside(held.real):
                    raise SourceError(
                        f"{shown(name)} leads to {shown(str(held.real))}, outside of "
                        f"{shown(str(self._boundary.top))}.",
                        "Copy the file into the folder of your code.",
                    )
                if held.size > _LARGE:
                    why = "it is larger than a megabyte"
                elif not (why := secret_files.reason(file, held)):
                    with held.open() as opened:
                        text = opened.read().decode("utf-8-sig")
                    why = "it is not text" if "\0" in text else ""
        except (OSError, UnicodeDecodeError) as error:
            why = str(error.strerror) if isinstance(error, OSError) else "it is not text"
        if why:
            raise SourceError(
                f"{shown(name)} cannot be read: {why}.",
                "%requirements names a file next to your code.",
            )
        return text


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with content and their numbers; continued lines are joined."""
    number, rest = 0, ""
    for raw in text.splitlines():
        number += 1
        if _REMARK.match(raw):  # a comment is never continued, and ends a continued line
            raw = f" {raw}"
        elif raw.endswith("\\"):
            rest += raw[:-1]
            continue
        line, rest = _COMMENT.sub("", rest + raw).strip(), ""
        if line:
            yield number, line
    if line := _COMMENT.sub("", rest).strip():
        yield number, line


def _option(line: str) -> tuple[str, str]:
    """Return the option of a line and its value; for a package, "" and the line."""
    if not _OPTION.match(line):
        return "", line
    if not line.startswith("--"):
        return line[:2], line[2:].lstrip(" =")
    name, _, value = re.sub(r"[=\s]+", " ", line, count=1).partition(" ")
    return name, value.strip()


def _words(value: str, place: str) -> list[str]:
    """Split the value of an option as pip does."""
    try:
        return shlex.split(value) or [""]
    except ValueError:
        raise SourceError(
            f"{place}: a quote is not closed.", "Write a backslash before a quote in a name."
        ) from None


def _editable(said: str, place: str, remote: bool) -> SourceError:
    if remote:
        return SourceError(
            f"{place}: {said} is editable, so pip would keep it on this machine.",
            "Name it without -e, as a package: `repo @ git+https://…`.",
        )
    return SourceError(
        f"{place}: {said} is a local path; replicas may run on other machines.",
        "Modules next to your code are included automatically; use %files for other folders.",
    )
