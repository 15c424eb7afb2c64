"""Volumes of the cell on this machine: links and empty folders in the job's folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.record import RECORD_ERRORS, Folder
from ciao_kernel.config.storage import OwnFolder
from ciao_kernel.delivery import checkpoints
from ciao_kernel.errors import SpecError
from ciao_kernel.model import JobSpec, State
from ciao_kernel.model.volume import Volume, VolumeKind, overlap
from ciao_kernel.plugins import Plan
from ciao_kernel.user_path import expanded

_ENDING = (State.STOPPED, State.FAILED)


def check(plan: Plan, folders: Mapping[str, str]) -> None:
    """Check that each volume has a place and a folder on this machine.

    Args:
        plan: The program to run, with its volumes.
        folders: The setting ``volumes``: a local folder for the name of a claim, or for the
            address of an NFS export.

    Raises:
        SpecError: A path is absolute, hides files of the program, has no folder here, or is that of
            another volume of another role.
    """
    paths = [file.path for file in plan.source.all()]
    found: list[tuple[Volume, Path | None]] = []
    for one in plan.spec.all_volumes:
        here = check_one(one, folders)
        if hidden := one.hides(paths):
            raise _refused(
                f"the volume {one} and the program's file {hidden} are at the same place.",
                "Name another folder in %volume.",
            )
        for other, there in found:
            same = one.where == other.where and here == there
            if overlap(one.where, other.where) and not same:
                raise _refused(
                    f"the volumes {other} and {one} of two roles are at the same place, and all "
                    "replicas on this machine share the program's folder.",
                    "Name another folder in one of them, or run the job on a cluster.",
                )
        found.append((one, here))


def check_one(one: Volume, folders: Mapping[str, str]) -> Path | None:
    """Return the folder of this machine that a volume stands for; None for an empty folder.

    Raises:
        SpecError: Its path is absolute, or it has no folder here.
    """
    if one.is_absolute:
        raise _refused(
            f"the volume {one} has an absolute path, which a job on this machine cannot have.",
            "Write a path relative to the program's folder, such as data: it is the same here "
            "and on a cluster.",
        )
    return origin(one, folders)


def origin(one: Volume, folders: Mapping[str, str]) -> Path | None:
    """Return the folder of this machine that a volume stands for; None for an empty folder.

    Raises:
        SpecError: The setting names none, or it does not exist.
        UsageError: It is in a home folder that does not exist.
    """
    if one.kind in (VolumeKind.TMP, VolumeKind.MEMORY):
        return None
    if one.kind is VolumeKind.HOST:
        return _existing(one, Path(one.path), "Create it, or name another folder in %volume.")
    name = one.source if one.kind is VolumeKind.CLAIM else one.what
    if name not in folders:
        raise _refused(
            f"the volume {one} has no folder on this machine.",
            f"Name one: `%ciao config volumes.{name}=/some/folder`.",
        )
    found = expanded(folders[name])
    if one.kind is VolumeKind.CLAIM:
        found /= one.path
    hint = f"Create it, or name another one: `%ciao config volumes.{name}=/some/folder`."
    return _existing(one, found, hint)


def _existing(one: Volume, folder: Path, hint: str) -> Path:
    if not folder.is_dir():
        raise _refused(
            f"the folder of the volume {one} does not exist on this machine: {folder}.", hint
        )
    return folder


def described(spec: JobSpec, folders: Mapping[str, str]) -> list[str]:
    """Return a line for each volume of a dry run: its place, what is there, and for which roles."""
    lines = []
    for one in spec.all_volumes:
        roles = [group.role for group in spec.groups if one in group.volumes]
        whose = "" if one in spec.shared_volumes else f"  (for {' and '.join(roles)})"
        lines.append(f"{one.where}  {origin(one, folders) or 'an empty folder'}{whose}")
    return lines


def place(volumes: Sequence[Volume], work: Path, folders: Mapping[str, str]) -> None:
    """Create the links and empty folders of a job.

    Args:
        volumes: The volumes of all replicas, after :func:`check`.
        work: The program's folder.
        folders: The setting ``volumes``.
    """
    for one in {one.where: one for one in volumes}.values():
        target = work / one.where
        private_files.make_folders(target.parent, work)
        if (folder := origin(one, folders)) is None:
            private_files.make_folders(target, work)
        else:
            target.symlink_to(folder, target_is_directory=True)


def keep(folder: Path, work: Path, storage: OwnFolder) -> None:
    """Create the folder of checkpoints, if it is missing, and its link in the job's folder.

    Args:
        folder: The folder, which outlives the job.
        work: The program's folder.
        storage: This user's storage; a folder in it is for this user alone.
    """
    if folder.is_relative_to(storage.path):
        storage.prepare(*folder.relative_to(storage.path).parts)
    folder.mkdir(parents=True, exist_ok=True)
    (work / checkpoints.WHERE).symlink_to(folder, target_is_directory=True)


def keeper(folder: Path, jobs: Path, host: Host) -> str:
    """Return the name of a job that ends and may still save there; "" if there is none.

    Args:
        folder: A folder of checkpoints.
        jobs: The folder of jobs.
        host: This machine.
    """
    for path in jobs.iterdir():
        with contextlib.suppress(*RECORD_ERRORS):
            if not (path / "work" / checkpoints.WHERE).samefile(folder):
                continue
            job = Folder(path)
            status = job.read_status()
            if status is None or status["settled"]:
                continue
            ends = status["state"] in _ENDING or job.is_stop_requested()
            if ends and host.is_supervisor_alive(job, status):
                return path.name
    return ""


def _refused(message: str, hint: str) -> SpecError:
    return SpecError(message, hint, directive="volume")
