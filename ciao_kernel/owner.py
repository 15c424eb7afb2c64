"""Whom jobs belong to, for lists."""

from __future__ import annotations

import getpass
import os
import socket


def me() -> str:
    """The user and the machine: ``ada@laptop``; in a pod, the pod's name."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = str(os.getuid())  # In a container the user's number may have no name.
    return f"{user}@{socket.gethostname()}"
