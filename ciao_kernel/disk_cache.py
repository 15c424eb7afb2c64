"""Caches that do not grow forever: entries that no cell has used for a long time are removed.

An entry is a file or a folder. The process that creates it holds a lock, a file beside it with the
suffix ``.lock``. Users of an entry call :func:`used` before they check whether it exists. An entry
may be a program that is run, so only one that :func:`is_own` counts; any other is made again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

from ciao_kernel import file_lock, private_files

_DAY = 24 * 3600.0
_GONE = ".gone"


def used(mark: Path) -> None:
    """Record that an entry is used now: set its time, or the time of a file in it."""
    with contextlib.suppress(OSError):  # another user's file, or a read-only disk
        os.utime(mark)


def is_own(entry: Path) -> bool:
    """Return whether an entry exists, and only this user can have written it."""
    try:
        status = entry.lstat()
    except OSError:
        return False
    return not stat.S_ISLNK(status.st_mode) and private_files.is_own(status)


def prune(
    folder: Path, days: float, mark: str = "", busy: Callable[[Path], bool] = lambda entry: False
) -> list[Path]:
    """Remove entries that were not used for some days, and return them.

    Entries that another process has locked stay, and so do entries that cannot be removed.

    Args:
        folder: Folder of the entries.
        days: Days without use after which an entry is removed.
        mark: Name of the file in an entry whose time is the last use; "": the entry's own time.
        busy: Returns whether something that runs still needs an entry.
    """
    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(folder.iterdir()):
            if entry.suffix == ".lock" or not _old(entry, days, mark):
                continue
            if entry.suffix == _GONE:  # left by a process that was killed
                _remove(entry)
                continue
            with contextlib.suppress(OSError):
                if (lock := file_lock.try_lock(entry.with_suffix(".lock"))) is None:
                    continue
                with lock:
                    if not _old(entry, days, mark) or busy(entry):
                        continue
                    # A rename is instant: no process waits for the removal or finds half an entry.
                    gone = entry.with_suffix(_GONE)
                    _remove(gone)
                    entry.rename(gone)
                    if _old(gone, days, mark):
                        found.append(entry)
                    else:  # used just now
                        gone.rename(entry)
    for entry in found:
        _remove(entry.with_suffix(_GONE))
    return found


def _old(entry: Path, days: float, mark: str) -> bool:
    with contextlib.suppress(OSError):
        told = entry / mark if mark and (entry / mark).exists() else entry
        return time.time() - told.stat().st_mtime > days * _DAY
    return False


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            entry.unlink()
