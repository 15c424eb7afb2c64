"""The volumes that the setting ``jobVolumes`` gives to all cells.

They become part of the job's header, as if the cell had named them, so that a rerun has the same.
"""

from __future__ import annotations

from dataclasses import replace

from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.table import Table
from ciao_kernel.model import Volume
from ciao_kernel.model.volume import overlap
from ciao_kernel.plugins import Backend, LackingVolumes, Plan
from ciao_kernel.session import planning
from ciao_kernel.visible_text import listed

_LISTED = 8
"""Maximum number of volumes that a notice names."""


def with_volumes(
    plan: Plan, settings: Settings, backend: Backend, table: Table
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of a new job with the volumes of the setting, and notices about them.

    A place that the cell itself gives to a volume stays the cell's. A volume that the job cannot
    have is left out with a notice, because the cell has not asked for it.

    Args:
        plan: The plan of the cell.
        settings: The volumes.
        backend: Runs the job.
        table: The directives.
    """
    spec, notices = plan.spec, []
    own = [one.where for one in spec.all_volumes]
    free = [
        one for one in settings.job_volumes if not any(overlap(one.where, where) for where in own)
    ]
    added = []
    for one in free:
        if why := _why_not(one, plan, backend):
            notices.append(f"left out {one} of the setting jobVolumes: {why}")
        else:
            added.append(one)
    if added:
        names = listed([str(one) for one in added], _LISTED)
        notices.insert(0, f"mounted, because the setting jobVolumes names them: {names}")
        spec = replace(spec, volumes=(*spec.volumes, *added))
        plan = replace(plan, spec=spec, header=planning.shown_header(spec, table))
    return plan, tuple(notices)


def _why_not(one: Volume, plan: Plan, backend: Backend) -> str:
    """Return why a job cannot have a volume, as a sentence; "" if it can."""
    if hidden := one.hides(file.path for file in plan.source.all()):
        return f"the program's file {hidden} is at the same place."
    if plan.spec.checkpoint is not None and overlap(one.where, checkpoints.WHERE):
        return f"%checkpoint mounts the folder {checkpoints.WHERE} there."
    try:
        planning.check_outputs(replace(plan.spec, volumes=(one,)))
        if isinstance(backend, LackingVolumes):
            backend.check_volume(one)
    except SpecError as error:
        return error.message
    return ""
