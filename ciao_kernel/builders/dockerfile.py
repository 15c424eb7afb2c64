"""Dockerfiles: those of environments, written here; and users' own, read and made safe.

Pure functions from text to text. What the executor would pass over in silence is refused.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ciao_kernel.errors import SourceError
from ciao_kernel.requirements import Requirements

PLACE = "/opt/ciao"
"""Where an image keeps the files that it was made from."""
ASKED = "ciao-asked"
"""Folder of a context with what directives ask for: no file of the user's is hidden by it."""
CARRIED = "/ciao-context"
"""Where an image that carries a large context has it."""
_PIP = {
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # else pip stops at the Python of a distribution
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_CONDA = (
    "if command -v micromamba; then micromamba install --yes --name base --file {0} "
    "&& micromamba clean --all --yes; "
    "elif command -v mamba; then mamba env update --name base --file {0} "
    "&& mamba clean --all --yes; "
    "elif command -v conda; then conda env update --name base --file {0} "
    "&& conda clean --all --yes; "
    "else echo 'ciao: there is no conda in this image' >&2; exit 64; fi"
)
_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?\s*[\"']?[A-Za-z_]")
_QUOTED = re.compile(r"(?<!<<)(?<!<<-)(?:'[^']*'|\"(?:\\.|[^\"\\])*\")")
_FLAGS = re.compile(r"(?:--[a-z]+(?:=\S+)?\s+)*")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
_REMOTE = re.compile(r"(https?|git|ssh)://|git@")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile.

    Args:
        name: In capitals.
        rest: What follows, on one line.
        line: Where it begins, from 1.
        end: Its last line.
    """

    name: str
    rest: str
    line: int
    end: int

    @property
    def flags(self) -> tuple[str, ...]:
        """What stands before the arguments: ``--from=build``."""
        found = _FLAGS.match(self.rest)
        return tuple(found[0].split()) if found else ()

    @property
    def arguments(self) -> str:
        """The rest without its flags."""
        return _FLAGS.sub("", self.rest, count=1)

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of COPY and ADD: a list of JSON, or words."""
        text = self.arguments.strip()
        if text.startswith("["):
            try:
                found = json.loads(text)
                return tuple(str(one) for one in found)
            except (ValueError, TypeError):
                return ()
        return tuple(text.split())

    @property
    def copies(self) -> bool:
        """Whether it takes files out of the context."""
        return self.name in ("COPY", "ADD") and not any(
            flag.startswith("--from=") for flag in self.flags
        )


def environment(
    base: str,
    wanted: Requirements,
    apt: Sequence[str] = (),
    conda: bool = False,
    *,
    user: str = "",
    python: str = "python3",
) -> str:
    """Write the Dockerfile of an environment.

    Args:
        base: The image to begin with, by its digest.
        wanted: What pip installs; its files are in the context.
        apt: Debian packages.
        conda: There is an ``environment.yml`` in the context.
        user: Whom the base runs as; root does the work, and the image is theirs again.
        python: Of the replicas.
    """
    lines = [f"FROM {base}"]
    if user:
        lines.append("USER root")
    if apt:
        names = " ".join(shlex.quote(name) for name in apt)
        lines.append(
            "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes "
            f"--no-install-recommends {names} && rm -rf /var/lib/apt/lists/*"
        )
    if conda:
        file = f"{PLACE}/environment.yml"
        lines += [f"COPY {ASKED}/environment.yml {file}", f"RUN {_CONDA.format(file)}"]
    lines += install(wanted, python)
    if user:
        lines.append(f"USER {user}")
    return "".join(f"{line}\n" for line in lines)


def install(wanted: Requirements, python: str = "python3") -> list[str]:
    """The instructions that let pip install."""
    if not wanted.packages:
        return []
    names = [f"{ASKED}/requirements.txt"]
    names += [f"{ASKED}/constraints.txt"] if wanted.constraints else []
    variables = {**_PIP, **({"PIP_INDEX_URL": wanted.index} if wanted.index else {})}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    held = f" -c {PLACE}/constraints.txt" if wanted.constraints else ""
    return [
        f"COPY {' '.join(names)} {PLACE}/",
        f"RUN {settings} {shlex.quote(python)} -m pip install -r {PLACE}/requirements.txt{held}",
    ]


def instructions(text: str) -> list[Instruction]:
    """Split a Dockerfile; comments are left out, and continued lines are one."""
    found: list[Instruction] = []
    escape = "`" if re.match(r"\s*#\s*escape\s*=\s*`", text) else "\\"
    pieces: list[str] = []
    began = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and pieces):
            continue
        began = number if not pieces else began
        bare = line.rstrip()
        if bare.endswith(escape):
            pieces.append(bare[:-1])
            continue
        pieces.append(bare)
        name, _, rest = " ".join(pieces).strip().partition(" ")
        pieces = []
        if name:
            found.append(Instruction(name.upper(), rest.strip(), began, number))
    if pieces:
        name, _, rest = " ".join(pieces).strip().partition(" ")
        found.append(Instruction(name.upper(), rest.strip(), began, len(text.splitlines())))
    return found


def check(text: str, name: str) -> None:
    """Refuse what the executor would drop without a word.

    Args:
        text: A user's Dockerfile.
        name: Of its file, for messages.

    Raises:
        SourceError: Names the line.
    """
    found = instructions(text)
    if not any(one.name == "FROM" for one in found):
        raise SourceError(f"{name} has no FROM.", "The first instruction names the base image.")
    for one in found:
        if one.name in ("RUN", "COPY", "ADD") and _HEREDOC.search(_QUOTED.sub("", one.rest)):
            raise SourceError(
                f"{name}, line {one.line}: here-documents (<<) are passed over by the builder, "
                "and nothing would run.",
                "Put the text into a file beside the notebook and COPY it, or join commands by &&.",
            )
        if one.name == "RUN" and (mount := _first(one.flags, "--mount")):
            raise SourceError(
                f"{name}, line {one.line}: the builder ignores RUN {mount}, and the command would "
                "run without it.",
                "Leave it out; %pipSecret=… gives pip a password that stays out of the image.",
            )


def _first(flags: Sequence[str], name: str) -> str:
    return next((flag for flag in flags if flag.partition("=")[0] == name), "")


def bases(text: str) -> dict[int, str]:
    """The images that a Dockerfile begins with, by the line of their FROM.

    Stages, ``scratch`` and names that only a build could know are left out.
    """
    variables: dict[str, str] = {}
    stages: set[str] = set()
    found: dict[int, str] = {}
    begun = False
    for one in instructions(text):
        if one.name == "ARG" and not begun:
            name, equals, value = one.rest.partition("=")
            if equals:
                variables[name.strip()] = value.strip().strip("\"'")
        if one.name != "FROM":
            continue
        begun = True
        words = one.arguments.split()
        image = _VARIABLE.sub(lambda match: _value(match, variables), words[0]) if words else ""
        if image and image != "scratch" and image not in stages and "$" not in image:
            found[one.line] = image
        if len(words) == 3 and words[1].upper() == "AS":
            stages.add(words[2])
    return found


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    return variables.get(match[1] or match[3]) or match[2] or match[0]


def pinned(text: str, digests: Mapping[int, str]) -> str:
    """Put an image by its digest into each FROM, by its line: the text says what it builds."""

    def written(one: Instruction) -> str:
        if one.line not in digests:
            return ""
        stage = one.arguments.split()[1:]
        return " ".join(["FROM", *one.flags, digests[one.line], *stage])

    return _rewritten(text, written)


def sources(text: str) -> list[tuple[int, str]]:
    """What a Dockerfile takes out of its context: each with its line."""
    return [
        (one.line, word)
        for one in instructions(text)
        if one.copies
        for word in one.words[:-1]
        if not _REMOTE.match(word)
    ]


def through(text: str, image: str) -> str:
    """Let a Dockerfile take its files out of an image that carries them at :data:`CARRIED`.

    Raises:
        SourceError: An ADD could do more than copy.
    """

    def written(one: Instruction) -> str:
        if not one.copies or not one.words or all(map(_REMOTE.match, one.words[:-1])):
            return ""
        if one.name == "ADD":
            raise SourceError(
                f"line {one.line}: ADD takes a file of a context that is too large for it.",
                "Write COPY, and unpack archives by RUN.",
            )
        *files, target = one.words
        moved = [f"{CARRIED}/{file.removeprefix('./').lstrip('/')}" for file in files]
        moved = [f"{CARRIED}/" if path == f"{CARRIED}/." else path for path in moved]
        return " ".join(["COPY", f"--from={image}", *one.flags, json.dumps([*moved, target])])

    return _rewritten(text, written)


def _rewritten(text: str, write: Callable[[Instruction], str]) -> str:
    """Replace instructions; all lines keep their numbers."""
    lines = text.splitlines()
    for one in instructions(text):
        if new := write(one):
            lines[one.line - 1 : one.end] = [new] + [""] * (one.end - one.line)
    return "".join(f"{line}\n" for line in lines)
