"""Paths that begin as the user has typed: files, folders and interpreters."""

from __future__ import annotations

import glob
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ciao_kernel.errors import UsageError
from ciao_kernel.user_path import expanded

_MOST_ENTRIES = 20_000
"""Entries of a folder to read at most; Tab must not hang in a folder with a million files."""
MOST_MATCHES = 500
Secret = Callable[[Path], object]
"""Returns a true value for a secret file."""


def interpreters(typed: str, folder: Path) -> Iterator[str]:
    """Yield interpreters: those of PATH by their names, others by their paths."""
    if "/" in typed or typed.startswith("~"):
        return iter(paths(typed, folder))
    minor = range(sys.version_info.minor + 2, 9, -1)
    names = ("python3", "python", *(f"python3.{number}" for number in minor))
    found = [name for name in names if _is_chosen(shutil.which(name))]
    return (name for name in (*found, sys.executable) if name.startswith(typed))


def _is_chosen(program: str | None) -> bool:
    """Return whether there is a program, and not only a shim of pyenv for versions not in use."""
    if not program:
        return False
    shims = Path(program).parent
    if shims.name != "shims":
        return True
    name, root = Path(program).name, shims.parent
    try:
        text = os.environ.get("PYENV_VERSION") or (root / "version").read_text()
    except (OSError, ValueError):
        return True  # shims of another tool, or of versions that are not known here
    versions = text.replace(":", " ").split()
    # "3.11" is the newest of 3.11.1, 3.11.2 and so on; "system" is what PATH has besides.
    return "system" in versions or any(
        any(root.glob(f"versions/{glob.escape(one)}*/bin/{name}")) for one in versions
    )


def paths(typed: str, folder: Path, secret: Secret | None = None) -> list[str]:
    """Return files and folders that start with the typed text; folders end in ``/``.

    Args:
        typed: A path, relative or absolute.
        folder: Folder for a relative path.
        secret: Given if the file is to be delivered: then only files in the folder are allowed,
            and no secret files.
    """
    parent, _, prefix = typed.rpartition("/")
    if secret and (typed.startswith(("/", "~")) or ".." in parent.split("/")):
        return []
    shown = typed[: len(typed) - len(prefix)]
    found = []
    try:
        place = Path(folder, expanded(shown))
        with os.scandir(place) as entries:
            for entry in itertools.islice(entries, _MOST_ENTRIES):
                name = entry.name
                hidden = name.startswith(".") and not prefix.startswith(".")
                # A name that is not printable cannot be typed in a header either.
                if not name.startswith(prefix) or hidden or not name.isprintable():
                    continue
                end = "/" if entry.is_dir() else ""
                if secret and not end and secret(place / name):
                    continue
                # A leading "~" or "!" has a special meaning.
                sign = secret and not shown and name.startswith(("~", "!"))
                found.append(("./" if sign else shown) + name + end)
    except (OSError, ValueError, UsageError):
        # Missing or unreadable folder, half a character, or no home folder.
        return []
    return sorted(found)[:MOST_MATCHES]
