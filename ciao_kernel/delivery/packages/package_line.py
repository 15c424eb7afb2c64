"""A line that names a package for pip: a requirement (PEP 508), or an address, and options of pip.

``packaging`` is imported late: a kernel imports this module when it starts.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from ciao_kernel.errors import SourceError
from ciao_kernel.redaction import conceal, mask
from ciao_kernel.visible_text import short, visible

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_ARCHIVE = re.compile(r"\.(?:whl|zip|tar\.\w+|tgz)(?:\s*(?:[;\[]|$)|\s+-)")
"""The end of a file name, before extras, a marker or options."""
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""A variable of the environment; pip replaces it."""
_LOGIN = re.compile(r"(?<![^\s/])[^\s/:]*+:[^\s/]*@")
"""A user and a password without ``//`` before them: ``user:password@host/x.whl``."""
_VERSIONED = re.compile(r"[A-Za-z0-9][\w.-]{0,63}+\s{0,4}(?:===?|[<>!~]=|[<>])\s{0,4}[\dv*]")
"""The start of a line that is surely meant as a package: ``numpy>=1``."""
_FLAG = re.compile(r"^(?:--[a-z-]+=?|-[A-Za-z]=?)")
"""An option at the start of a word; its value may follow."""
_LOCAL_PATH = re.compile(r"file:|[/.~]|[^:]*/", re.IGNORECASE)
"""The start of a value that is a path or a ``file:`` address; in others a colon precedes a /."""
_MOST_PARENTHESES = 100
"""No line has so many; ``packaging`` refuses them by a RecursionError or in words of its own."""


def variables(line: str) -> list[str]:
    """Return the names of the variables of the environment that pip replaces in a line."""
    return _VARIABLE.findall(line)


def parsed(line: str) -> Requirement:
    """Return the requirement of a line, without pip's options, such as ``--hash=…``.

    Raises:
        ValueError: The line is an address, or it is wrong: the first line of the text tells why.
    """
    from packaging.requirements import Requirement

    # pip's own rule for the start of the options. "0" is valid as a part of names and versions.
    text = _VARIABLE.sub("0", line.partition(" -")[0])
    if text.count("(") > _MOST_PARENTHESES:
        raise ValueError("Too many parentheses.")
    return Requirement(text)


def name(line: str) -> str:
    """Return the name of the package, normalized for comparisons; "" if the line has none."""
    from packaging.utils import canonicalize_name

    try:
        return canonicalize_name(parsed(line).name)
    except ValueError:
        return ""


def wish(line: str) -> str:
    """Return the package with its extras for a message; the masked line if it has no name."""
    try:
        found = parsed(line)
    except ValueError:
        return mask(line)
    extras = ",".join(sorted(found.extras))
    return f"{found.name}[{extras}]" if extras else found.name


def shown(line: str) -> str:
    """Return the start of a line for a message, without users, passwords and tokens."""
    return visible(short(conceal(_LOGIN.sub("…@", mask(line)))))


def shows_secret(text: str) -> bool:
    """Return whether a text shows a password or a token where :func:`conceal` hides all it finds.

    So does an error with the line of the cell.
    """
    return conceal(_LOGIN.sub("…@", mask(text))) != conceal(text)


def remote(line: str) -> bool:
    """Return whether a line names an address that other machines can reach too."""
    return "://" in line and not re.search(r"\bfile:", line)


def names_local_path(line: str) -> bool:
    """Return whether a line with options of pip names a file or a folder of this machine."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is not closed
        words = line.split()
    return any(_LOCAL_PATH.match(_FLAG.sub("", word)) for word in words)


def check(line: str, place: str, *, strict: bool = False) -> None:
    """Check that a line names a package that other machines can install too.

    Args:
        line: The line, as pip reads it.
        place: The place of the line, for messages.
        strict: The line is in a cell: it becomes part of the program and of the job's header.
            A line of a file is not quoted, unless it is surely meant as a package: the user may
            have named a file that is something else, such as a file with passwords.

    Raises:
        SourceError: It does not.
    """
    if strict and line.startswith("-"):
        raise SourceError(
            f"{place} accepts packages, but {shown(line)} is an option of pip.",
            "Write options in a file: %requirements=requirements.txt.",
        )
    if strict and mask(line) != line:
        raise SourceError(
            f"{place} names a user or a password, but directives are sent with the job.",
            "Put them into ~/.netrc or into pip's own configuration, and write only the address.",
        )
    if remote(line):
        return
    if line.startswith((".", "/", "~")) or "file:" in line or _ARCHIVE.search(line):
        raise _local(line, place, strict)
    if _VARIABLE.search(line):  # its value may have any form
        return
    try:
        found = parsed(line)
    except ValueError as error:
        why = shown(str(error).partition("\n")[0])
        if not strict and not _VERSIONED.match(line):
            why = why.partition(":")[0]  # after it, some messages quote the line
            raise SourceError(
                f"{place} does not name a package: {why[:1].lower()}{why[1:].rstrip('.')}.",
                "A requirements file has one package in each line, such as numpy>=2.",
            ) from None
        raise SourceError(
            f"{place}: '{shown(line)}' is not a package: {why[:1].lower()}{why[1:].rstrip('.')}.",
            "Write each package without spaces, or in quotes: %packages=pandas 'numpy >= 2'.",
        ) from None
    if found.url:
        raise _local(line, place, strict)


def _local(line: str, place: str, strict: bool) -> SourceError:
    what = f"{place}: {shown(line)}" if strict else place
    return SourceError(
        f"{what} is a local path; replicas may run on other machines.",
        "Name a package of an index, or write `--find-links FOLDER` in a requirements file.",
    )
