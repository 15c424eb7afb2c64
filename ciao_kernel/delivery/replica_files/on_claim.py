"""The files of a pod on a claim: several read them, and one removes them."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import sys

from ciao_kernel.delivery.replica_files.finding import Found, reason
from ciao_kernel.delivery.replica_files.marks import POD_MARK, read_mark

BUSY = 6
"""Exit code of a removal that did nothing, as somebody reads the files."""
_OF_A_JOB = re.compile(r"(?:^|/)ciao-output/[0-9a-f]{32}(?:/|$)")
_OF_JOBS = re.compile(r"(?:^|/)ciao-output$")
"""Where the files of a job, and of all jobs, are on a claim."""
_UID = re.compile(r"[0-9A-Za-z-]+")
_REMOVALS = 1000
"""Most beginnings of a removal: each ends at a file that somebody else has removed."""


def own_of_claim(found: Found) -> Found:
    """Return the files of a claim without those that other jobs have there."""

    def foreign(path: str) -> bool:
        return _OF_A_JOB.search(path) is not None

    return found._replace(
        sizes={path: size for path, size in found.sizes.items() if not foreign(path)},
        left_out=[path for path in found.left_out if not foreign(path)],
        # The folder of all jobs may be that of another user, who alone can list it.
        faults={
            path: why
            for path, why in found.faults.items()
            if not foreign(path) and not _OF_JOBS.search(path)
        },
    )


def remove(path: str, pod: str) -> None:
    """Remove the folder of a replica on a claim, and the one that it is in if that is empty then.

    Files of another pod stay, and so do files that somebody reads. What is there no more was
    removed by somebody else.
    """
    if not _UID.fullmatch(pod):
        sys.exit("the uid of their pod is damaged")
    going = f"{path}.{pod}"
    try:
        if locked(path, alone=True) == pod:
            _clear(going)
            os.rename(path, going)  # at once: a removal may be cut
        if os.path.isdir(going):
            if _writer(going) not in (pod, ""):  # a later pod has saved its own before the move
                os.rename(going, path)
                return
            remove_parts(path, going)
            _clear(going)
    except BlockingIOError:
        sys.exit(BUSY)
    except OSError as error:
        sys.exit(reason(error))
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def remove_parts(path: str, saved: str) -> None:
    """Remove what earlier pods of a replica have left beside its folder on a claim.

    They were killed before all was copied. What a later pod copies meanwhile is younger.

    Args:
        path: The replica's folder.
        saved: The same, where it is now.
    """
    with contextlib.suppress(OSError):  # somebody else removes them
        written = os.stat(os.path.join(saved, POD_MARK)).st_mtime_ns
        folder, name = os.path.split(path)
        for one in os.listdir(folder):
            part = os.path.join(folder, one)
            if one.startswith(name + ".") and os.lstat(part).st_mtime_ns < written:
                shutil.rmtree(part, ignore_errors=True)


def _writer(folder: str) -> str:
    """Return the uid of the pod that wrote a folder; "" if its mark is removed."""
    try:
        return read_mark(folder, POD_MARK)
    except FileNotFoundError:
        return ""


def _clear(folder: str) -> None:
    """Remove a folder that somebody else may be removing too."""
    for _ in range(_REMOVALS):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not os.path.isdir(folder):
                return
        else:
            return


def locked(folder: str, *, alone: bool) -> str | None:
    """Lock the files that a pod wrote to a claim, as long as this process lives.

    Args:
        folder: The folder of a replica.
        alone: Whether nobody else may have a lock.

    Returns:
        The uid of the pod; None if its files are there no more.

    Raises:
        BlockingIOError: Somebody else reads, or removes them.
    """
    fcntl = importlib.import_module("fcntl")
    place = os.path.join(folder, POD_MARK)
    access = os.O_RDWR if alone else os.O_RDONLY
    try:
        file = os.open(place, access | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # some storage has no locks
    try:
        if not os.path.samestat(os.stat(place), os.fstat(file)):
            return None  # another one has its name
    except OSError:
        return None
    return os.read(file, 256).decode(errors="replace")
