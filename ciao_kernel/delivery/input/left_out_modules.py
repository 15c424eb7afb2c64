"""Modules that Python imports in the notebook's folder, and that are not delivered by themselves.

Extension modules are made for this machine, and links to folders are not followed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from ciao_kernel.magics.shell_words import quote
from ciao_kernel.visible_text import listed

_FEW = 3
"""Paths that a hint repeats."""


def beside(folder: Path, name: str) -> Iterator[Path]:
    """Yield the extension modules of a name in a folder."""
    paths = (folder / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return (path for path in paths if path.is_file())


def is_one(path: Path) -> bool:
    """Return whether a path in a package is an extension module, or a linked folder with modules.

    Args:
        path: A file, or a link to a folder.
    """
    if not path.is_dir():
        return path.name.endswith(tuple(EXTENSION_SUFFIXES))
    try:
        return any(one.suffix == ".py" for one in path.iterdir())
    except OSError:
        return False


def note(paths: Sequence[str], delivered: Collection[str]) -> str:
    """Return a sentence about such modules; "" if %files includes all of them.

    Args:
        paths: Their paths, relative to the notebook's folder.
        delivered: Paths of files that are delivered.
    """
    left = [
        path
        for path in paths
        if not any(one == path or one.startswith(f"{path}/") for one in delivered)
    ]
    if not left:
        return ""
    hint = f"%files={' '.join(map(quote, left))} includes" if len(left) <= _FEW else "%files takes"
    them = "it" if len(left) == 1 else "them"
    return f"modules that are not included by themselves: {listed(left)}; {hint} {them}"
