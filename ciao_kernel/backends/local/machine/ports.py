"""Ports for the replicas of a local job."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from ciao_kernel.errors import EnvironmentFault

HOST = "127.0.0.1"
_LOW, _HIGH = 20000, 60000


def free(count: int, held: Collection[int] = ()) -> list[int]:
    """Return ports that nothing listens on now, and that no other job holds.

    All are below the system's range for outgoing connections, so that no connection can take a
    port between this choice and the replica's own bind.

    Raises:
        EnvironmentFault: There are not enough.
    """
    candidates = [port for port in range(_LOW, _ephemeral_start()) if port not in held]
    found: list[int] = []
    with contextlib.ExitStack() as open_sockets:
        for port in _in_random_order(candidates):
            if len(found) == count:
                break
            probe = open_sockets.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
    if len(found) < count:
        raise EnvironmentFault(
            f"the job needs {count} free ports from {_LOW} up, and only {len(found)} are free.",
            "End other programs that listen there, or run fewer replicas.",
        )
    return found


def _in_random_order(ports: list[int]) -> Iterator[int]:
    """Yield all of them, and draw a random number only for those that are used.

    To shuffle ten thousand takes 4 ms, for which the first line of a job would wait.
    """
    for last in reversed(range(len(ports))):
        chosen = random.randint(0, last)
        ports[chosen], ports[last] = ports[last], ports[chosen]
        yield ports[last]


def _ephemeral_start() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        start = int(text.split()[0])
    except (OSError, ValueError, IndexError):
        start = 49152  # IANA's
    return start if start > _LOW + 1000 else _HIGH
