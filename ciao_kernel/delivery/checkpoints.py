"""The folder of ``%checkpoint``: which one a job has, and where a program finds it.

It is mounted as the folder ``checkpoint`` beside the program, so a relative path works too. Jobs
with the same ``%name`` share it, whatever number is appended to their names: a later one goes on
from the checkpoint of an earlier one.
"""

from __future__ import annotations

import posixpath
from pathlib import Path

from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.directives.surviving import CheckpointPlace
from ciao_kernel.model import Checkpoint, JobSpec, Volume, VolumeKind
from ciao_kernel.model.volume import CHECKPOINT, overlap
from ciao_kernel.plugins import Plan
from ciao_kernel.user_path import expanded

WHERE = CHECKPOINT
"""The folder's path, relative to the program's folder."""
VARIABLE = "CIAO_CHECKPOINT"


def variables(spec: JobSpec, workdir: str) -> dict[str, str]:
    """Return the variable with the folder's path in a replica; empty without ``%checkpoint``."""
    return {VARIABLE: posixpath.join(workdir, WHERE)} if spec.checkpoint is not None else {}


def check(plan: Plan) -> None:
    """Check that nothing else of the job is in the folder's place.

    Raises:
        SpecError: A file of the program or a volume is.
    """
    if plan.spec.checkpoint is None:
        return
    files = next((one.path for one in plan.source.all() if overlap(one.path, WHERE)), None)
    if files is not None:
        raise _refused(
            f"%checkpoint mounts the folder {WHERE}, where the program has the file {files}.",
            f"Rename it, or use a %volume, which may be in another folder than {WHERE}.",
        )
    near = next((one for one in plan.spec.all_volumes if overlap(one.where, WHERE)), None)
    if near is not None:
        raise _refused(
            f"%checkpoint mounts the folder {WHERE}, where the volume {near} is.",
            "Name another folder in %volume.",
        )


def on_cluster(spec: JobSpec, settings: Settings, job: str) -> tuple[Volume, ...]:
    """Return the volume of a job's checkpoints on a cluster; nothing without ``%checkpoint``.

    Args:
        spec: The cell's header.
        settings: The place if the header names none.
        job: Name of the job.

    Raises:
        SpecError: Neither names a claim.
    """
    if spec.checkpoint is None:
        return ()
    place = spec.checkpoint
    if not place.claim:
        if not settings.checkpoint or is_folder(settings.checkpoint):
            why = "the setting checkpoint names a folder of this machine"
            raise _refused(
                "%checkpoint on a cluster needs a claim, and "
                f"{why if settings.checkpoint else 'the setting checkpoint is empty'}.",
                "Name one: %checkpoint=CLAIM, or for all jobs `%ciao config checkpoint=CLAIM`.",
            )
        place = CheckpointPlace().parse(settings.checkpoint)
    return (Volume(VolumeKind.CLAIM, WHERE, place.claim, _path(place, spec, job)),)


def on_this_machine(spec: JobSpec, settings: Settings, job: str) -> Path | None:
    """Return the folder of a local job's checkpoints; None without ``%checkpoint``.

    Raises:
        SpecError: The claim has no folder on this machine.
        UsageError: It is in a home folder that does not exist.
    """
    if spec.checkpoint is None:
        return None
    place = spec.checkpoint
    if not place.claim:
        if not settings.checkpoint:
            return settings.own_storage / "checkpoints" / (spec.name or job)
        if is_folder(settings.checkpoint):
            return expanded(settings.checkpoint) / (spec.name or job)
        place = CheckpointPlace().parse(settings.checkpoint)
    if place.claim not in settings.volumes:
        own = bool(spec.checkpoint.claim)
        of = "of %checkpoint" if own else "of %checkpoint, named by the setting checkpoint,"
        alone = own and (not settings.checkpoint or is_folder(settings.checkpoint))
        other = "; %checkpoint alone needs none" if alone else ""
        raise _refused(
            f"the claim {place.claim} {of} has no folder on this machine.",
            f"Name one: `%ciao config volumes.{place.claim}=/some/folder`{other}.",
        )
    folder = expanded(settings.volumes[place.claim])
    if not folder.is_dir():
        raise _refused(
            f"the folder of the claim {place.claim} does not exist on this machine: {folder}.",
            f"Create it, or name another one: `%ciao config volumes.{place.claim}=/some/folder`.",
        )
    return folder / _path(place, spec, job)


def is_folder(setting: str) -> bool:
    """Return whether a value of the setting ``checkpoint`` is a folder of this machine."""
    return setting.startswith(("/", "~"))


def _path(place: Checkpoint, spec: JobSpec, job: str) -> str:
    return posixpath.join(place.path, spec.name or job)


def _refused(message: str, hint: str) -> SpecError:
    return SpecError(message, hint, directive="checkpoint")
