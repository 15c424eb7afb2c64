"""Paths of this machine that begin with ``~``, as users type them."""

from __future__ import annotations

from pathlib import Path

from ciao_kernel.errors import UsageError
from ciao_kernel.visible_text import visible


def expanded(path: str, setting: str = "") -> Path:
    """Return a path with a home folder in place of ``~`` or ``~name``.

    Args:
        path: The path.
        setting: The setting that names it, for the error; "" if the caller adds that.

    Raises:
        UsageError: There is no such home folder.
    """
    if not path.startswith("~"):  # pathlib removes the ./ of ./~name, and then looks for a user
        return Path(path)
    try:
        return Path(path).expanduser()
    except RuntimeError:
        name = path.partition("/")[0].removeprefix("~")
        why = f"no user has the name {visible(name)}" if name else "this user has no home folder"
        what = f"{setting} is {visible(path)}, which" if setting else visible(path)
        raise UsageError(
            f"{what} is no path of this machine: {why}.",
            "Write an absolute path, or ./ before a name that begins with ~.",
        ) from None
