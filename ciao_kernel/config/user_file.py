"""The user's file of settings: its place, and whether it can be saved there."""

from __future__ import annotations

import os
from pathlib import Path

from ciao_kernel.home_folder import home


def user_file() -> Path:
    """Return the user's file of settings, which may not exist."""
    named = os.environ.get("XDG_CONFIG_HOME")
    return (Path(named) if named else home() / ".config") / "ciao" / "config.toml"


def can_be_saved() -> bool:
    """Return whether ``ciao config`` may write the file, in a folder that it may have to create."""
    try:
        folder = user_file().resolve().parent  # a link into a folder of dotfiles stays a link
        while not folder.exists():
            folder = folder.parent
    except (OSError, RuntimeError):  # a closed folder, or a loop of links (before Python 3.13)
        return False
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
