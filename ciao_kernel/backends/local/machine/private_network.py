"""A network for the replicas of one local job alone: a network namespace with only ``lo``.

TensorFlow and torchrun listen on all interfaces, whatever address they are told, and ask nobody for
a password. In this network only processes of the job can reach them; and they reach nothing else.

Facts: namespaces(7), user_namespaces(7), network_namespaces(7), netdevice(7). A user without
privileges creates a user namespace as well, which gives the right to create the other; it maps only
this user, so files have the same owners inside and outside.

Standard library only, because the supervisor of such a job imports this module; ctypes because
``os.unshare`` and ``os.setns`` are new in Python 3.12.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_NEWUSER, _NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # linux/sockios.h, linux/if.h
_IFREQ = "16sh22x"

_REASONS = {
    errno.ENOSPC: "the limit user.max_user_namespaces or user.max_net_namespaces is reached",
    errno.EINVAL: "this Linux has no network namespaces",
}

System = Callable[[str, int, int], None]
"""Calls ``unshare`` (second argument unused) or ``setns``; raises OSError."""


class Network:
    """An existing network, which processes may enter while this object has it open.

    Args:
        descriptors: Its namespaces in the order in which they are entered.
        system: Calls Linux.
    """

    def __init__(self, descriptors: list[int], system: System) -> None:
        self._descriptors = descriptors
        self._system = system

    @classmethod
    def of(cls, pid: int) -> Network:
        """Return the network of a process of this user; raises OSError if it has ended."""
        # Linux refuses to enter the user namespace in which a process already is.
        same = Path("/proc/self/ns/user").samefile(f"/proc/{pid}/ns/user")
        kinds = ["net"] if same else ["user", "net"]
        descriptors: list[int] = []
        try:
            for kind in kinds:
                descriptors.append(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return cls(descriptors, call_linux())

    def enter(self) -> None:
        """Move this process, which has one thread, into the network; raises OSError."""
        for descriptor in self._descriptors:
            self._system("setns", descriptor, 0)

    def close(self) -> None:
        """Close the descriptors. The network ends with its last process."""
        for descriptor in self._descriptors:
            os.close(descriptor)


def create(system: System | None = None) -> Network:
    """Create a network; this process, which has one thread, stays in its own.

    Args:
        system: Replaces the calls of Linux in tests.

    Raises:
        OSError: Linux or its administrator does not allow it.
    """
    system = system or call_linux()
    result, result_writer = os.pipe()
    done, done_writer = os.pipe()
    # Namespaces belong to processes, so a child has it until this process has opened it.
    child = os.fork()
    if not child:
        os.close(result)
        os.close(done_writer)
        _hold(system, result_writer, done)
    os.close(result_writer)
    os.close(done)
    try:
        code = int(os.read(result, 16) or errno.ECHILD)
        if code:
            raise OSError(code, _REASONS.get(code, os.strerror(code)))
        return Network.of(child)
    finally:
        os.close(done_writer)
        os.close(result)
        os.waitpid(child, 0)


def main() -> None:
    """Exit with 1 and the reason on stderr if no network can be created."""
    try:
        create().close()
    except OSError as error:
        sys.exit(error.strerror)


def call_linux() -> System:
    """Return a function that calls ``unshare`` and ``setns`` of the C library.

    Raises:
        OSError: This Python has no ctypes.
    """
    try:
        import ctypes
    except ImportError:
        raise OSError(errno.ENOSYS, "this Python has no ctypes") from None
    library: Any = ctypes.CDLL(None, use_errno=True)

    def call(name: str, first: int, second: int) -> None:
        arguments = (first,) if name == "unshare" else (first, second)
        if getattr(library, name)(*arguments):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return call


def _hold(system: System, result: int, done: int) -> None:
    """Create the network in this child, report an error's number or 0, wait, and exit."""
    code = 0
    try:
        _enter_new(system)
    except OSError as error:
        code = error.errno or errno.EPERM
    finally:
        with contextlib.suppress(OSError):
            os.write(result, str(code).encode())
            os.read(done, 1)
        os._exit(0)


def _enter_new(system: System) -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        system("unshare", _NEWNET, 0)
    except PermissionError:
        system("unshare", _NEWUSER | _NEWNET, 0)
        # In this order: without it, no group may be mapped.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    import socket  # slow, and only this child needs it

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = struct.pack(_IFREQ, b"lo", 0)
        flags = struct.unpack(_IFREQ, fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_IFREQ, b"lo", flags | _IFF_UP))
