"""Caches that do not grow for ever: what no cell has used for long is removed.

An entry is a file or a folder; its lock, for whoever makes it, lies beside it with the suffix
``.lock``. Who uses one calls :func:`used` before it looks whether the entry is there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

_DAY = 24 * 3600.0
_GONE = ".gone"


def used(mark: Path) -> None:
    """Note that an entry is used now: its own time says so, or that of a file in it."""
    with contextlib.suppress(OSError):  # another user's, or a disk that is only read
        os.utime(mark)


def prune(
    folder: Path, days: float, mark: str = "", busy: Callable[[Path], bool] = lambda entry: False
) -> list[Path]:
    """Remove what was not used for so many days, and return what that was.

    What another process has locked stays, and so does what cannot be removed.

    Args:
        folder: Of the entries.
        days: After which an entry goes.
        mark: Name of the file in an entry whose time tells when it was used; "": its own does.
        busy: Whether something that runs still needs an entry.
    """
    import fcntl

    found = []
    with contextlib.suppress(OSError):
        for entry in sorted(folder.iterdir()):
            if entry.suffix == ".lock" or not _old(entry, days, mark):
                continue
            if entry.suffix == _GONE:  # of one who was killed meanwhile
                _remove(entry)
                continue
            with contextlib.suppress(OSError), entry.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _old(entry, days, mark) and not busy(entry):
                    # At once, so that nobody waits for it or finds half of it.
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
