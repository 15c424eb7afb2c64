"""A loopback for the tests of one process alone: no other program can take a port of theirs.

Who starts a kernel or a server chooses free ports first, and the child binds them a second later.
In between another test may get the same one from the system: rarely, but a run starts hundreds.
With a network of its own a worker of pytest-xdist has all ports to itself. That takes root; without
it ports are shared, as they are on any machine.

tests/conftest.py runs the tests of this machine in it, and those of a cluster outside: they may
follow on the same worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_NETWORK = 0x40000000  # CLONE_NEWNET
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
_HERE = "/proc/thread-self/ns/net"

_own: int | None = None
"""The network of this process' tests, once there is one."""


def here() -> int:
    """The number of the network in which this thread is."""
    with contextlib.suppress(OSError):
        return Path(_HERE).stat().st_ino
    return 0


@contextlib.contextmanager
def entered() -> Iterator[None]:
    """Be in the own network; the main thread, and what it starts from then on."""
    try:
        before = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # not Linux
        yield
        return
    try:
        _enter()
        yield
    finally:
        _call("setns", before, _NETWORK)
        os.close(before)


def _enter() -> None:
    global _own
    if _own is not None:
        _call("setns", _own, _NETWORK)
    elif _call("unshare", _NETWORK):
        _up("lo")
        _own = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: int) -> bool:
    """Call the system's function, which os has only since Python 3.12; false where it is denied."""
    return getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) == 0


def _up(interface: str) -> None:
    request = struct.pack("16sh22x", interface.encode(), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _GET_FLAGS, request)
        (flags,) = struct.unpack_from("h", answer, 16)
        changed = struct.pack("16sh22x", interface.encode(), flags | _UP)
        fcntl.ioctl(any_socket, _SET_FLAGS, changed)
