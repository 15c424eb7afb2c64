"""The address of the replica, and a free port of it for each run."""

from __future__ import annotations

import socket

_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
# Addresses that no machine has (RFC 5737, RFC 3849).


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
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))  # nothing is sent
                return str(probe.getsockname()[0])
        except OSError:
            continue  # a cluster may have only one of the families
    return "127.0.0.1"
