"""The input of a warm replica of this machine: a named pipe, which its agent reads."""

from __future__ import annotations

import errno
import os
import select
import stat
import time

from ciao_kernel.backends.local.record import Folder
from ciao_kernel.delivery.warm import FOLDER
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Replica

_PATIENCE = 10.0
"""Seconds after which an agent that reads nothing is given up."""


def feed(folder: Folder, replica: Replica, data: bytes) -> None:
    """Write a command.

    Raises:
        BackendError: The agent does not run, or does not read.
    """
    path = folder.path / "work" / FOLDER / f"{replica}.in"
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _not_delivered(replica, error) from None
    try:
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            raise _not_delivered(replica, OSError(errno.EINVAL, "its input is no pipe"))
        _write(pipe, data)
    except OSError as error:
        raise _not_delivered(replica, error) from None
    finally:
        os.close(pipe)


def _write(pipe: int, data: bytes) -> None:
    until = time.monotonic() + _PATIENCE
    left = memoryview(data)
    room = select.poll()  # select.select takes no descriptor above 1023
    room.register(pipe, select.POLLOUT)
    while left:
        if not room.poll(max(0.0, until - time.monotonic()) * 1000):
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        left = left[os.write(pipe, left[: select.PIPE_BUF]) :]


def _not_delivered(replica: Replica, error: OSError) -> BackendError:
    return BackendError(f"{replica} takes no command: {error.strerror}.")
