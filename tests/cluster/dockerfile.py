"""Reads Dockerfiles of deploy/, so that the tests' images are made by their very lines."""

import json
import shlex
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Dockerfile:
    """What a Dockerfile of one stage says: commands, files, further commands.

    Args:
        base: the image it begins with.
        first: the commands before files are copied, as a script.
        copies: pattern in the context and folder in the image.
        then: the commands behind that, as a script.
        config: the `config` of the OCI image configuration.
    """

    base: str
    first: str
    copies: tuple[tuple[str, str], ...]
    then: str
    config: dict[str, object]


def read(file: Path, path: str) -> Dockerfile:
    """Read a Dockerfile that says no more than FROM, RUN, COPY, ENV, WORKDIR, USER and CMD.

    Args:
        file: the Dockerfile.
        path: PATH of the image that it begins with, as `PATH=…`.

    Raises:
        ValueError: it says something else.
    """
    base = ""
    scripts: tuple[list[str], list[str]] = ([], [])
    copies: list[tuple[str, str]] = []
    env = dict([path.split("=", 1)])
    config: dict[str, object] = {}
    for word, rest in _instructions(file.read_text()):
        if word == "FROM":
            base = rest
        elif word == "RUN":
            # `set -e` does not see what fails in the middle of a && b && c.
            scripts[bool(copies)].append(f"({rest}) || exit 1")
        elif word == "COPY":
            pattern, target = rest.split()
            copies.append((pattern, target))
        elif word == "ENV":
            said = string.Template(rest).substitute(env)
            env.update(pair.split("=", 1) for pair in shlex.split(said))
        elif word in ("WORKDIR", "USER"):
            config[{"WORKDIR": "WorkingDir", "USER": "User"}[word]] = rest
        elif word == "CMD":
            config["Cmd"] = json.loads(rest)
        else:
            raise ValueError(f"{file}: {word} is not known here")
    config["Env"] = [f"{name}={value}" for name, value in env.items()]
    first, then = ("\n".join(lines) for lines in scripts)
    return Dockerfile(base, first, tuple(copies), then, config)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()
