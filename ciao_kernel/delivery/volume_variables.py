"""Variables that tell a program where its data are, by the names that others' code expects."""

from __future__ import annotations

import posixpath
import re

from ciao_kernel.delivery.input.variables import FOLDER
from ciao_kernel.model import JobSpec, Source, VolumeKind
from ciao_kernel.model.volume import overlap

VARIABLE = "CIAO_INPUT"
_CHANNEL = "SM_CHANNEL_"
_DATA = (VolumeKind.CLAIM, VolumeKind.NFS, VolumeKind.HOST)


def variables(spec: JobSpec, workdir: str, source: Source) -> dict[str, str]:
    """Return the variables with the folders of ``%volume``, ``%input`` and ``%files`` in a replica.

    ``CIAO_INPUT`` is the folder ``input``, if the job has one. Programs for SageMaker look for
    ``SM_CHANNEL_TRAIN`` (sagemaker-training-toolkit, ENVIRONMENT_VARIABLES): each volume with data
    has such a variable, named after the last part of its path.

    Args:
        spec: The cell's header.
        workdir: The program's folder.
        source: The program and its files, of which some may be in that folder.
    """
    found: dict[str, str] = {}
    if (
        spec.inputs
        or any(overlap(one.where, FOLDER) for one in spec.volumes)
        or any(one.path.startswith(f"{FOLDER}/") for one in source.all())
    ):
        found[VARIABLE] = posixpath.join(workdir, FOLDER)
    for one in spec.volumes:
        if one.kind in _DATA:
            word = re.sub(r"[^A-Z0-9]", "_", posixpath.basename(one.where).upper())
            found.setdefault(_CHANNEL + word, posixpath.join(workdir, one.where))
    return found
