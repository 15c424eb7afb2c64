"""Files that a Dockerfile of the user takes from the notebook's folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from ciao_kernel.builders import context, dockerfile, packed_context
from ciao_kernel.delivery.input import ignore_files
from ciao_kernel.oci.layer import File
from ciao_kernel.visible_text import listed, visible

_NOTEBOOKS = "**/*.ipynb"
"""Files that are left out: JupyterLab saves a notebook by itself, and each save would mean a new
environment."""
_INCLUDED = re.compile(r"!.*\.ipynb")
"""A line of ``.dockerignore`` that includes notebooks."""


def gather(
    folder: Path, name: str, text: str, say: Callable[[str], None] = lambda _: None
) -> tuple[File, ...]:
    """Find the files.

    Notebooks are left out, unless a path matches nothing else, or a line of ``.dockerignore``
    includes them (``!name``).

    Args:
        folder: Folder of the notebook.
        name: Name of the Dockerfile, for messages.
        text: Its text.
        say: Receives notices about links that are not followed, and about notebooks.

    Raises:
        SourceError: A path matches nothing, or a file that no image should contain.
    """
    wishes = [(word, f"{name}, line {line}") for line, word in dockerfile.sources(text, name)]
    lines = context.read_optional(folder, ".dockerignore")
    # A line such as !src includes a folder, and does not ask for the notebooks in it.
    included = [one for one in map(str.strip, lines.splitlines()) if _INCLUDED.fullmatch(one)]
    notebooks = ignore_files.docker("\n".join([_NOTEBOOKS, *included]))
    left = dict[str, None]()
    found = context.gather(
        folder, wishes, ignore_files.docker(lines), say, spare=notebooks, leave=left.setdefault
    )
    taken = {one.path for one in found}
    if names := [name for name in left if name not in taken]:
        say(
            f"notebooks are left out: {listed(names)}; a line !{visible(names[0])} in "
            ".dockerignore takes one."
        )
    return found


def digest(folder: Path, name: str) -> str:
    """Return a digest of the Dockerfile and the files.

    Args:
        folder: Folder of the notebook.
        name: Path of the Dockerfile, relative to the folder.

    Raises:
        SourceError: A file cannot be read, or no image should contain it.
    """
    text = context.read(folder, name, "%dockerfile")
    files = packed_context.digest(gather(folder, name, text), lambda: None)
    return hashlib.sha256(f"{files}\n{text}".encode()).hexdigest()
