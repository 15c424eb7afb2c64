"""The commit of the git repository that contains a folder, read without git itself."""

from __future__ import annotations

import re
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LARGEST = 1 << 20


def commit_of(folder: Path) -> str:
    """Return the commit that is checked out; "" if there is none.

    Changes since that commit are not noticed. See git's documentation, "gitrepository-layout".
    """
    for one in (folder, *folder.parents):
        found = one / ".git"
        try:
            if found.exists():
                return _head(found)
        except (OSError, ValueError):  # broken, or in a folder that this user may not enter
            return ""
    return ""


def _head(found: Path) -> str:
    if found.is_file():  # a linked worktree or a submodule
        found = found.parent / _read(found).removeprefix("gitdir:").strip()
    head = _read(found / "HEAD")
    if not head.startswith("ref:"):
        return _checked(head)
    name = head.removeprefix("ref:").strip()
    common = found / _read(found / "commondir") if (found / "commondir").is_file() else found
    for place in (found, common):
        if (place / name).is_file():
            return _checked(_read(place / name))
    for line in _read(common / "packed-refs").splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return _checked(commit)
    return ""


def _checked(text: str) -> str:
    return text if _COMMIT.fullmatch(text) else ""


def _read(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.read(_LARGEST).strip()
