"""Removes folders of jobs, and what killed submits and deletions left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from pathlib import Path

from ciao_kernel import log, private_files
from ciao_kernel.backends.local import hosts
from ciao_kernel.backends.local.record import LEFTOVERS, Folder
from ciao_kernel.errors import BackendError

_log = logging.getLogger(__name__)

_DAY = 24 * 3600.0
ASIDE = "."
"""Prefix of folders that are being removed; no job's name has it."""
_SET_ASIDE = re.compile(r"\.[^.].*-[0-9a-f]{8}")


def discard(folder: Folder) -> None:
    """Remove a job's folder; the name is free at once."""
    aside = folder.path.with_name(f"{ASIDE}{folder.path.name}-{os.urandom(4).hex()}")
    with contextlib.suppress(OSError):  # On failure it is removed in place.
        # A fresh folder is not cleared by other processes.
        os.utime(folder.path, follow_symlinks=False)
        folder.path.rename(aside)
        folder = Folder(aside)
    remove(folder)


def remove(folder: Folder) -> None:
    """Remove a job's folder, including folders in it that are not writable or readable.

    Raises:
        BackendError: Something could not be removed; names the folder.
    """
    _remove_tree(folder.path)
    if not _is_folder(folder.path):
        return
    _open_up(folder.path)
    # Each folder before os.walk lists it, which needs the right to read.
    for parent, folders, _ in os.walk(folder.path):
        for name in folders:
            _open_up(Path(parent, name))
    _remove_tree(folder.path)
    if folder.path.exists():
        raise BackendError(
            f"{folder.path} cannot be removed completely.",
            "A file in it may belong to another user, or be in use. Remove it by hand.",
        )


def clear_leftovers(root: Path, host: hosts.Host) -> None:
    """Remove folders that killed submits and deletions left behind; they are not listed as jobs.

    A folder is removed if it is a day old by the storage's clock, and was either set aside for
    removal or contains only files of a submit. A folder that cannot be removed stays, and does no
    harm. So does a folder that another user may have placed there, and one of this user whose name
    only begins with a dot.
    """
    now = host.now()
    with contextlib.suppress(OSError):
        for path in root.iterdir():
            with log.ignored(_log, "removing a leftover", OSError, BackendError):
                known = path.lstat()
                if not stat.S_ISDIR(known.st_mode) or not private_files.is_own(known):
                    continue
                if now - known.st_mtime < _DAY:
                    continue
                if path.name.startswith(ASIDE):
                    goes = _SET_ASIDE.fullmatch(path.name) is not None
                else:
                    goes = not {one.name for one in path.iterdir()} - LEFTOVERS
                if goes:
                    remove(Folder(path))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _open_up(path: Path) -> None:
    """Give this user all rights to a folder, if it is no link to one."""
    with contextlib.suppress(OSError):
        if _is_folder(path):
            path.chmod(0o700)


def _remove_tree(path: Path) -> None:
    import shutil  # it imports modules of archives, which a list of jobs does not need

    shutil.rmtree(path, ignore_errors=True)
