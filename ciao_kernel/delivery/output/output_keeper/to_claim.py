"""The way back by a claim."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import time
from collections.abc import Sequence

from ciao_kernel.delivery.output.output_keeper.copies import copy
from ciao_kernel.delivery.output.output_keeper.program_end import why_none

_FOLDERS = 10
"""Most tries to make a folder on a claim, where the folder around it may be removed."""


def save(
    marks: str,
    linger: float,
    limit: int,
    folder: str,
    words: list[str],
    skip: Sequence[str] = (),
) -> str:
    """Wait for the program's end, and copy the files to a claim; return why that failed.

    The replica's folder there gets its name when all is in it, in place of that of an earlier try.

    Args:
        marks: Folder for marks.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        folder: The folder of the job on the claim.
        words: The paths of ``%output``.
        skip: Folders of which nothing is copied.
    """
    if (none := why_none(marks, words)) is not None:
        return none
    files = importlib.import_module("ciao_replica_files")
    part = ""
    before = os.umask(0o022)  # whoever reads the claim may be another user
    try:
        replica = files.read_mark(marks, files.REPLICA)
        if not re.fullmatch(r"[a-z]+-[0-9]+", replica):  # the program can write it
            raise ValueError("the name of the replica is damaged")
        uid = os.environ[files.POD_UID]
        place = os.path.join(folder, replica)
        part = place + "." + uid
        shutil.rmtree(part, ignore_errors=True)
        made = _make_part(folder, part)
        for name in (files.TOO_LARGE, files.NOT_COPIED):  # of copies that are here already
            with contextlib.suppress(FileNotFoundError):
                text = files.read_mark(marks, name)
                with open(os.path.join(part, name), "w") as own:
                    own.write(text)
        if not os.path.exists(os.path.join(part, files.TOO_LARGE)):
            os.chdir(os.environ.get(files.COPIED, "."))
            copies = os.path.join(part, files.COPIES)
            copy(files, part, copies, limit, words, skip, open_to_all=True)
        with open(os.path.join(part, files.POD_MARK), "w") as file:
            file.write(uid)
        if not os.path.samestat(os.stat(part), os.fstat(made)):
            raise ValueError("its folder was removed meanwhile")
        shutil.rmtree(place, ignore_errors=True)
        os.rename(part, place)
        files.remove_parts(place, place)
    except (OSError, KeyError, ValueError) as error:
        shutil.rmtree(part, ignore_errors=True)
        return "the claim cannot be written: " + (getattr(error, "strerror", "") or repr(error))
    finally:
        os.umask(before)
    time.sleep(linger)
    return ""


def _make_part(folder: str, part: str) -> int:
    """Make the folder of a replica in that of its job; return it, open.

    As long as it is open, no other folder can be taken for it.
    """
    for left in reversed(range(_FOLDERS)):
        _make_job_folder(folder)
        try:
            os.mkdir(part)
        except FileNotFoundError:  # the last files of the job were removed, and its folder
            if not left:
                raise
        else:
            return os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    raise AssertionError("the last round returns or raises")


def _make_job_folder(folder: str) -> None:
    """Make the folder of a job on a claim, and the one that has the folders of all jobs.

    Jobs of other users have theirs beside it. As in /tmp, each may write there, and remove its own
    alone; but nobody else can list the names, which cannot be guessed. Replicas of one job may
    be different users too.
    """
    of_all = os.path.dirname(folder)
    os.makedirs(os.path.dirname(of_all), exist_ok=True)
    before = os.umask(0)  # at once: another job may come between two steps
    try:
        for path, mode in ((of_all, 0o1733), (folder, 0o1777)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, mode)
    finally:
        os.umask(before)
