"""The words of ``%output``: paths, and the way by which files leave a pod."""

from __future__ import annotations

import enum
from collections.abc import Iterable

OUTPUT_FOLDER = "output/"
"""Word for the folder whose files come back by ``%output`` without a value."""


class OutputWay(enum.StrEnum):
    """The way by which files of ``%output`` leave a pod."""

    AUTO = "auto"
    """A bucket if there is one, and otherwise exec or log, as the user's rights allow."""
    EXEC = "exec"
    """The pod stays until they are fetched by exec."""
    LOG = "log"
    """They are in the log of a container of the pod."""
    S3 = "s3"
    """The pod writes them to a bucket, at an address that the kernel has signed."""
    REGISTRY = "registry"
    """The pod pushes them to a registry, with the password of a Secret."""
    CLAIM = "claim"
    """The pod copies them to a volume claim, and another pod reads them there."""


OUTPUT_WAY = "by:"
"""Beginning of a word of ``%output`` that is an :class:`OutputWay`, and no path."""


def event_files(folder: str) -> str:
    """Return the path, with stars, of TensorBoard's event files in a folder."""
    return f"{folder}/**/*tfevents*"


def output_paths(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words of ``%output`` that are paths: neither a variable nor a way."""
    return tuple(
        word for word in words if not word.isidentifier() and not word.startswith(OUTPUT_WAY)
    )
