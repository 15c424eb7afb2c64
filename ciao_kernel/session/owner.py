"""Whom jobs belong to, for lists."""

from __future__ import annotations

import getpass
import os
import socket

_HUBS = {"KERNEL_USERNAME": "gateway", "JUPYTERHUB_USER": "hub"}
"""Who tells a kernel's pod whose it is; the pod's own name is a new one for each kernel."""


def me() -> str:
    """The user and the machine, ``ada@laptop``; under a gateway or a hub, ``ada@hub``."""
    for variable, place in _HUBS.items():
        if name := "".join(os.environ.get(variable, "").split()):
            return f"{name}@{place}"
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = str(os.getuid())  # In a container the user's number may have no name.
    return f"{user}@{socket.gethostname()}"
