"""Names the owner of jobs, for lists."""

from __future__ import annotations

import getpass
import os
import socket

_HUBS = {"KERNEL_USERNAME": "gateway", "JUPYTERHUB_USER": "hub"}
"""Variables with the user of a kernel's pod; the pod's own name is new for each kernel."""


def current_user() -> str:
    """Return user and machine, ``ada@laptop``; under a gateway or a hub, ``ada@hub``."""
    for variable, place in _HUBS.items():
        if name := "".join(os.environ.get(variable, "").split()):
            return f"{name}@{place}"
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = str(os.getuid())  # In a container the user ID may have no name.
    return f"{user}@{socket.gethostname()}"
