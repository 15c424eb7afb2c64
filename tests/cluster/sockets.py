"""Connects to sockets by their path, however long that is."""

import os
import socket
from pathlib import Path


def connect(path: Path, seconds: float) -> socket.socket:
    """Return a connection to the Unix socket at a path; each wait at it ends after so long.

    Raises:
        OSError: nobody listens there.
    """
    # By a link under /proc: the kernel takes 107 characters, and a cache may lie deeper.
    folder = os.open(path.parent, os.O_RDONLY)
    client = socket.socket(socket.AF_UNIX)
    try:
        client.settimeout(seconds)
        client.connect(f"/proc/self/fd/{folder}/{path.name}")
    except BaseException:
        client.close()
        raise
    finally:
        os.close(folder)
    return client
