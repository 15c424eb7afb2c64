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
_ANY = "*"
"""An architecture that is not known yet: in a path, the pattern matches each."""
_INCLUDED = re.compile(r"!.*\.ipynb")
"""A line of ``.dockerignore`` that includes notebooks."""


def ignore_file(folder: Path, name: str) -> str:
    """Return the name of the ignore file that counts for a Dockerfile; it may not exist.

    Args:
        folder: Folder of the notebook.
        name: Path of the Dockerfile, relative to the folder.
    """
    own = f"{name}.dockerignore"
    return own if (folder / own).is_file() else ".dockerignore"


def gather(
    folder: Path,
    name: str,
    text: str,
    say: Callable[[str], None] = lambda _: None,
    architecture: str = "",
) -> tuple[File, ...]:
    """Find the files.

    Notebooks are left out, unless a path matches nothing else, or a line of the ignore file
    includes them (``!name``). An ignore file that the executor reads gets the lines of the one
    that counts, so that no file is left out in the pod only.

    Args:
        folder: Folder of the notebook.
        name: Path of the Dockerfile, relative to the folder.
        text: Its text.
        say: Receives notices about links that are not followed, and about notebooks.
        architecture: Architecture of the image, as Go names it.

    Raises:
        SourceError: A path matches nothing, or a file that no image should contain.
    """
    sources = dockerfile.sources(text, name, architecture)
    wishes = [(word, f"{name}, line {line}") for line, word in sources]
    ignore = ignore_file(folder, name)
    lines = context.read_optional(folder, ignore)
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
            f"{ignore} takes one."
        )
    return context.with_rules(found, lines)


def digest(folder: Path, name: str) -> str:
    """Return a digest of the Dockerfile and the files, those for each architecture.

    Args:
        folder: Folder of the notebook.
        name: Path of the Dockerfile, relative to the folder.

    Raises:
        SourceError: A file cannot be read, or no image should contain it.
    """
    text = context.read(folder, name, "%dockerfile")
    files = packed_context.digest(gather(folder, name, text, architecture=_ANY), lambda: None)
    return hashlib.sha256(f"{files}\n{text}".encode()).hexdigest()
