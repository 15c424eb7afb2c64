"""The address of the replica, and a free port of it for each run."""

from __future__ import annotations

import socket


def free_port() -> socket.socket:
    """Return a bound socket, which keeps a port until the next run begins."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


def port_of(holder: socket.socket) -> int:
    """Return the port of a bound socket."""
    return int(holder.getsockname()[1])


def address() -> str:
    """Return the address of this machine or pod for other replicas, without a request to DNS."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
