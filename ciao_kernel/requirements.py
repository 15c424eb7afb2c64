"""What pip is asked for, by the directives of a cell: for any environment, here or in an image."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel.errors import SourceError
from ciao_kernel.model import BuildSpec


@dataclass(frozen=True, slots=True)
class Requirements:
    """Packages, and the file that may name more.

    Args:
        arguments: Of ``pip install``.
        key: Tells these wishes from any others: the file's text is part of it.
        label: The same for a reader.
        index: Address of the package index; "" means pip's own setting.
    """

    arguments: tuple[str, ...]
    key: str
    label: str
    index: str


def read(wanted: BuildSpec, work: Path) -> Requirements:
    """Return what a cell asks for.

    Args:
        wanted: The directives.
        work: Where the user works: the file is found from there.

    Raises:
        SourceError: The file cannot be read.
    """
    arguments, text, words = wanted.packages, "", list(wanted.packages)
    if wanted.requirements:
        file = work / wanted.requirements
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise SourceError(
                f"{wanted.requirements} cannot be read: {why}.",
                "%requirements names a file beside the notebook.",
            ) from None
        arguments += ("-r", str(file))
        words.append(wanted.requirements)
    index = wanted.pip_index or ""
    return Requirements(
        arguments, json.dumps([wanted.packages, text, index]), " ".join(words), index
    )
