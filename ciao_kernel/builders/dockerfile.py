"""Dockerfiles of users: finds their instructions, bases, user and files, and checks them.

Pure functions on text. Instructions that an executor may silently ignore are refused: the archived
kaniko accepts more than it carries out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from ciao_kernel.builders import dockerfile_flags
from ciao_kernel.builders.dockerfile_variables import (
    Values,
    automatic,
    expanded,
    unknown,
    unknown_reason,
)
from ciao_kernel.errors import SourceError
from ciao_kernel.redaction import password

_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?\s*[^\s<]")
"""What the parser of Dockerfiles takes for one, even in an arithmetic expression."""
_QUOTED = re.compile(r"(?<!<<)(?<!<<-)(?:'[^']*+(')?|\"(?>(?:\\.|[^\"\\])*)(\")?)", re.DOTALL)
"""A quoted text; it has a group if its closing quote is there."""
_FLAGS = re.compile(r"(?:--[A-Za-z][\w-]*(?:=\S*)?(?:\s+|$))*")
_NUMBER = re.compile(r"\d+")
FROM_FLAG = "--from="
_QUOTES = re.compile(r"([\"'])(.*?)\1")
REMOTE_URL = re.compile(r"(https?|git|ssh)://|git@")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile.

    Args:
        name: Name in capitals.
        rest: Text after the name, on one line.
        line: Number of its first line, from 1.
        end: Number of its last line.
    """

    name: str
    rest: str
    line: int
    end: int

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags before the arguments, such as ``--from=build``."""
        found = _FLAGS.match(self.rest)
        return tuple(found[0].split()) if found else ()

    @property
    def arguments(self) -> str:
        """The rest without the flags."""
        return _FLAGS.sub("", self.rest, count=1)

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of COPY and ADD: a JSON list, or words."""
        text = self.arguments.strip()
        if text.startswith("["):
            try:
                found = json.loads(text)
                return tuple(str(one) for one in found)
            except (ValueError, TypeError):
                return ()
        return tuple(_QUOTES.sub(r"\2", word) for word in text.split())

    @property
    def copied_from(self) -> str:
        """The stage or image that a COPY takes files from; "" means the context."""
        found = (flag for flag in self.flags if self.name == "COPY" and flag.startswith(FROM_FLAG))
        return next(found, "").removeprefix(FROM_FLAG)

    @property
    def reads_context(self) -> bool:
        """Return whether the instruction takes files from the context."""
        return self.name in ("COPY", "ADD") and not self.copied_from


def instructions(text: str) -> list[Instruction]:
    """Split a Dockerfile into instructions; comments are left out, continued lines are joined."""
    found: list[Instruction] = []
    escape = "`" if re.match(r"\s*#\s*escape\s*=\s*`", text) else "\\"
    parts: list[str] = []
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and parts):
            continue
        first = number if not parts else first
        stripped = line.rstrip()
        if stripped.endswith(escape):
            parts.append(stripped[:-1])
            continue
        parts.append(stripped)
        if stripped.strip() or len(parts) > 1:
            found.append(_instruction(" ".join(parts), first, number))
        parts = []
    if parts:
        found.append(_instruction(" ".join(parts), first, len(text.splitlines())))
    return [one for one in found if one.name]


def _instruction(text: str, line: int, end: int) -> Instruction:
    name, rest = (*text.split(maxsplit=1), "", "")[:2]
    return Instruction(name.upper(), rest.strip(), line, end)


def check(text: str, name: str) -> None:
    """Refuse a Dockerfile with passwords, or with parts that an executor may silently ignore.

    Args:
        text: A user's Dockerfile.
        name: Name of its file, for messages.

    Raises:
        SourceError: The Dockerfile is refused; names the line.
    """
    found = instructions(text)
    if not any(one.name == "FROM" for one in found):
        raise SourceError(f"{name} has no FROM.", "The first instruction names the base image.")
    for one, known in walk(text):
        image, _ = _stage(one, known)
        undefined = unknown(image or one.arguments) if one.name == "FROM" else ""
        if undefined and not automatic(undefined):
            place = f"{name}, line {one.line}"
            why, hint = unknown_reason(image or one.arguments, known, place)
            raise SourceError(why, hint)
    for one in found:
        if password(one.rest):
            raise SourceError(
                f"{name}, line {one.line} names a password or a token, which the image would keep.",
                "Write the address without it: %pipSecret=NAME names a Secret whose pip.conf has "
                "the password.",
            )
        while one.name == "ONBUILD":
            one = _instruction(one.rest, one.line, one.end)
        unquoted = _QUOTED.sub(lambda found: "" if found.lastindex else found[0], one.rest)
        here = _HEREDOC.search(unquoted) if one.name in ("RUN", "COPY", "ADD") else None
        before = unquoted[: here.start() + 1] if here else ""
        if before.rfind("$((") > before.rfind("))"):
            raise SourceError(
                f"{name}, line {one.line}: the builder takes << in $((…)) for a here-document.",
                'Write the expression in double quotes: "$((1 << n))".',
            )
        if here:
            raise SourceError(
                f"{name}, line {one.line}: here-documents (<<) are not supported, because the "
                "original kaniko ignores them.",
                "Put the text into a file next to your code and COPY it, or join commands by &&.",
            )
        if given := dockerfile_flags.ignored(one.name, one.flags):
            raise SourceError(
                f"{name}, line {one.line}: {one.name} {given} is not supported, because the "
                "original kaniko ignores it.",
                "Leave it out; %pipSecret=… gives pip a password that stays out of the image."
                if given.startswith(dockerfile_flags.MOUNT)
                else "Leave it out.",
            )


def walk(text: str, architecture: str = "") -> Iterator[tuple[Instruction, Values]]:
    """Yield the instructions, each with the variables that the Dockerfile has set before it."""
    target = _target(architecture)
    global_arguments: dict[str, str | None] = {**target}
    values: dict[str, str] = {}  # of ARG and ENV: the later one counts
    environment: dict[str, str] = {}
    stages: dict[str, dict[str, str]] = {}
    in_stage = False
    for one in instructions(text):
        if one.name == "FROM":
            image, stage = _stage(one, global_arguments)
            # A stage inherits ENV from the stage that it begins with, but not ARG.
            in_stage, environment = True, {**stages.get(image.lower(), {})}
            values = {**environment}
            stages[stage] = environment
        known = {**values} if in_stage and one.name != "FROM" else global_arguments
        yield one, known
        if one.name == "ARG":
            for name, value in _pairs(one.rest):
                if not in_stage:
                    default = target.get(name)
                    global_arguments[name] = default if value is None else expanded(value, known)
                elif value is not None:
                    values[name] = expanded(value, known)
                elif (default := global_arguments.get(name)) is not None:
                    values[name] = default
        elif one.name == "ENV":
            for name, value in _pairs(one.rest):
                values[name] = environment[name] = expanded(value or "", known)


def _stage(one: Instruction, known: Values) -> tuple[str, str]:
    """Return the image of a FROM, and the name of its stage; "" if it has none."""
    image, *more = one.arguments.split() or [""]
    stage = more[1].lower() if len(more) == 2 and more[0].upper() == "AS" else ""
    return expanded(_QUOTES.sub(r"\2", image), known), stage


def _pairs(text: str) -> list[tuple[str, str | None]]:
    """Return the pairs of ARG and ENV; the value is None if none is given."""
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    if len(words) > 1 and "=" not in words[0]:  # ENV NAME value, the old form
        return [(words[0], " ".join(words[1:]))]
    split = [word.partition("=") for word in words]
    return [(name, value if equals else None) for name, equals, value in split]


def _target(architecture: str) -> dict[str, str]:
    """Return the variables that every build has: https://docs.docker.com/reference/dockerfile/."""
    if not architecture:
        return {}
    platform = f"linux/{architecture}"
    return {"TARGETARCH": architecture, "TARGETOS": "linux", "TARGETPLATFORM": platform}


def bases(text: str, architecture: str = "") -> dict[int, str]:
    """Return the images that a Dockerfile begins with or copies from, by line of FROM or COPY.

    Stages, ``scratch`` and names that are only known during the build are left out.

    Args:
        text: The Dockerfile.
        architecture: Architecture of the image, as Go names it.
    """
    stages: set[str] = set()
    found: dict[int, str] = {}
    for one, known in walk(text, architecture):
        image, stage = _stage(one, known) if one.name == "FROM" else (one.copied_from, "")
        is_stage = image.lower() in stages or (one.name != "FROM" and _NUMBER.fullmatch(image))
        if image and image != "scratch" and not is_stage and "$" not in image:
            found[one.line] = image
        if stage:
            stages.add(stage)
    return found


def user(text: str) -> tuple[str, int]:
    """Return the user of the image; if it is "", also the line of the FROM whose user applies."""
    by_stage: dict[str, tuple[str, int]] = {}
    found, stage = ("", 0), ""
    for one, known in walk(text):
        if one.name == "FROM":
            image, stage = _stage(one, known)
            found = by_stage.get(image.lower(), ("", one.line))
        elif one.name == "USER":
            found = one.rest, 0
        if stage:
            by_stage[stage] = found
    return found


def sources(
    text: str, name: str = "the Dockerfile", architecture: str = ""
) -> list[tuple[int, str]]:
    """Return the paths that a Dockerfile takes from its context, each with its line.

    Args:
        text: Text of the Dockerfile.
        name: Name of its file, for messages.
        architecture: Architecture of the image, as Go names it.

    Raises:
        SourceError: A path is only known during the build.
    """
    found = []
    for one, known in walk(text, architecture):
        for word in one.words[:-1] if one.reads_context else ():
            path = expanded(word, known)
            if REMOTE_URL.match(path):
                continue
            if unknown(path):
                raise SourceError(
                    f"{name}, line {one.line}: the path {word} is unknown before the build.",
                    "Write the path, or give the variable a value above: ARG NAME=value.",
                )
            found.append((one.line, path))
    return found
