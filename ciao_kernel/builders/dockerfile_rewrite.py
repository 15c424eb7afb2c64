"""Rewrites Dockerfiles for the executor: pins bases, adds a cache key, copies files from an image.

All lines keep their numbers, except after the lines that a cache key adds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from ciao_kernel.builders.dockerfile import FROM_FLAG, REMOTE_URL, Instruction, instructions, walk
from ciao_kernel.builders.dockerfile_variables import expanded

CONTEXT_FOLDER = "/ciao-context"
"""Folder of a large context in the image that carries it."""
_CACHE_KEY_ARG = "ARG CIAO_PIP_SECRET="


def pinned(text: str, digests: Mapping[int, str]) -> str:
    """Replace images in FROM and COPY by their digests, so that the text determines the result."""

    def rewritten(one: Instruction) -> str:
        if one.line not in digests:
            return ""
        if one.name == "FROM":
            return " ".join(["FROM", *one.flags, digests[one.line], *one.arguments.split()[1:]])
        rest = [flag for flag in one.flags if not flag.startswith(FROM_FLAG)]
        return " ".join(["COPY", f"{FROM_FLAG}{digests[one.line]}", *rest, one.arguments])

    return _rewritten(text, rewritten)


def copying_from(text: str, image: str) -> str:
    """Let a Dockerfile copy its files from an image that carries them at :data:`CONTEXT_FOLDER`.

    An ADD stays as it is, see :func:`added_line`.
    """

    def rewritten(one: Instruction) -> str:
        if one.name != "COPY" or not one.reads_context or not one.words:
            return ""
        *files, target = one.words
        paths = [f"{CONTEXT_FOLDER}/{file.removeprefix('./').lstrip('/')}" for file in files]
        paths = [f"{CONTEXT_FOLDER}/" if path == f"{CONTEXT_FOLDER}/." else path for path in paths]
        return " ".join(["COPY", f"{FROM_FLAG}{image}", *one.flags, json.dumps([*paths, target])])

    return _rewritten(text, rewritten)


def added_line(text: str, architecture: str = "") -> int:
    """Return the line of the first ADD of a file, which may do more than copy; 0 if there is none.

    Args:
        text: Text of the Dockerfile; the line is that of the user's.
        architecture: Architecture of the image, as Go names it.
    """
    for one, known in walk(text, architecture):
        paths = [expanded(word, known) for word in one.words[:-1] if one.name == "ADD"]
        if not all(map(REMOTE_URL.match, paths)):
            return original_line(text, one.line)
    return 0


def with_cache_key(text: str, secret: str) -> str:
    """Prevent the reuse of layers built with another Secret: the executor caches by command.

    Args:
        text: Text of the Dockerfile.
        secret: Secret of the build; "" if there is none.
    """

    def rewritten(one: Instruction) -> str:
        return f"FROM {one.rest}\n{_CACHE_KEY_ARG}{secret}" if secret and one.name == "FROM" else ""

    return _rewritten(text, rewritten)


def original_line(text: str, line: int) -> int:
    """Return the original number of a line of a Dockerfile with a cache key."""
    return line - sum(one.startswith(_CACHE_KEY_ARG) for one in text.splitlines()[: line - 1])


def _rewritten(text: str, write: Callable[[Instruction], str]) -> str:
    """Replace instructions; all lines keep their numbers."""
    lines = text.splitlines()
    for one in instructions(text):
        if new := write(one):
            lines[one.line - 1 : one.end] = [new] + [""] * (one.end - one.line)
    return "".join(f"{line}\n" for line in lines)
