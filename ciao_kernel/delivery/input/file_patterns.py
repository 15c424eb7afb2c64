"""The words of ``%files`` as names of existing files, and as patterns such as ``data/*.csv``."""

from __future__ import annotations

import difflib
from pathlib import Path, PurePosixPath

from ciao_kernel.visible_text import visible

CACHES = frozenset(
    {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Names that are never delivered with a folder: other machines create them again."""
_WILD = frozenset("*?[")


def exists(path: Path) -> bool:
    """Return whether a path exists, even as a broken link; OSError if the path is too long."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def matches(folder: Path, pattern: PurePosixPath) -> list[Path]:
    """Return the matches of a pattern; as in a shell, hidden files need a dot in it.

    Raises:
        OSError: A folder cannot be read.
        ValueError: The pattern is not valid.
    """
    if _WILD.isdisjoint(str(pattern)):
        return []
    hidden = any(part.startswith(".") for part in pattern.parts)
    found = []
    for path in sorted(folder.glob(str(pattern))):
        parts = path.relative_to(folder).parts
        secret = not hidden and any(part.startswith(".") for part in parts)
        if path.exists() and not secret and CACHES.isdisjoint(parts):
            found.append(path)
    return found


def fixed_part(pattern: PurePosixPath) -> str:
    """Return the folder before the first wildcard of a pattern: ``data`` of ``data/*.csv``."""
    parts: list[str] = []
    for part in pattern.parts:
        if not _WILD.isdisjoint(part):
            break
        parts.append(part)
    return "/".join(parts)


def nearest(folder: Path, pattern: str) -> str:
    """Return a hint for a pattern that matches nothing."""
    try:
        names = [entry.name for entry in (folder / pattern).parent.iterdir()]
    except OSError:
        names = []
    near = difflib.get_close_matches(Path(pattern).name, names, n=1)
    if near:
        found = (PurePosixPath(pattern).parent / near[0]).as_posix()
        return f"Did you mean {visible(found)}?"
    return "Paths are relative to that folder."
