"""Marks in the folder beside the files of a pod: small files that containers leave each other."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator

HELD = "CIAO_HELD"
"""Variable of the container that keeps files after the program's end: the folder for its marks."""
POD_UID = "CIAO_POD_UID"
"""Variable of a container that writes files to a bucket or a registry: the uid of its pod."""
COPIED = "CIAO_COPIES"
"""Variable of a container that does not see the program's folder: the folder for copies of files.
There are none if the program was killed with its parent."""
CONTACT, TAKEN, STOPPED, TOO_LARGE = "contact", "taken", "stopped", "too-large"
"""Marks: files are being fetched, all are fetched, the replica was told to end, and (with their
size) files are not kept because they are too large."""
REPLICA = "replica"
"""Mark with the name of the replica."""
READING = "reading"
"""Mark that is locked by all who fetch the files, each until it has them or is gone."""
FETCHING = "fetching-"
"""Beginning of the marks of single fetches. Each renews its own until it has all files: one whose
connection was cut holds no lock until it comes back."""
POD_MARK = "pod"
"""Mark with the uid of the pod that wrote the files beside it."""
NOT_COPIED = "not-copied.json"
"""Mark with the files that could not be copied, and why."""
COPIES = "files"
"""Folder beside the marks for copies of the files, where the program's folder cannot be seen."""


def mark(folder: str, name: str) -> None:
    """Set a mark, or renew its time."""
    with contextlib.suppress(OSError), open(os.path.join(folder, name), "ab"):
        os.utime(os.path.join(folder, name))


def read_mark(marks: str, name: str) -> str:
    """Return the text of a mark.

    A link is none: a program could lead it to files of this container that it cannot read itself.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(os.path.join(marks, name), flags)) as file:
        return file.read()


@contextlib.contextmanager
def reading(marks: str) -> Iterator[None]:
    """Hold the lock of those who fetch the files, which ends with this process in any case.

    Args:
        marks: Folder for marks; "" if nobody keeps the files.
    """
    with contextlib.ExitStack() as stack:
        if marks:
            with contextlib.suppress(OSError):  # also if they are kept no longer, just now
                file = _open_lock(marks)
                stack.callback(os.close, file)
                fcntl = importlib.import_module("fcntl")
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield


def is_read(marks: str) -> bool:
    """Return whether somebody fetches the files."""
    fcntl = importlib.import_module("fcntl")
    try:
        file = _open_lock(marks)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # some storage has no locks
    finally:
        os.close(file)
    return False


def is_awaited(marks: str, since: float) -> bool:
    """Return whether a fetch that does not have all files was heard of since some time."""
    with contextlib.suppress(OSError):
        for name in os.listdir(marks):
            place = os.path.join(marks, name)
            with contextlib.suppress(OSError):
                if name.startswith(FETCHING) and os.lstat(place).st_mtime > since:
                    return True
    return False


def _open_lock(marks: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(os.path.join(marks, READING), flags, 0o600)
