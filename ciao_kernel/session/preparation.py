"""Prepares the job of a cell: selects its builder, makes its plan, and checks what can be checked.

Nothing exists until all of it has passed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ciao_kernel.config import Settings
from ciao_kernel.model import Owner
from ciao_kernel.plugins import Backend, Builder, Plan
from ciao_kernel.session import horovod, job_volumes, planning, selection
from ciao_kernel.session.front_end import FrontEnd
from ciao_kernel.session.inspection.watchers import why_passed_over
from ciao_kernel.session.keras_note import keras_note
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.success_note import success_note

if TYPE_CHECKING:
    from ciao_kernel.delivery.input.program import Program
    from ciao_kernel.magics.parse import Parsed
    from ciao_kernel.session.warm.pool import WarmPool


class Prepared(NamedTuple):
    """A job that can be submitted."""

    plan: Plan
    backend: Backend
    """Runs it: the one that was selected, or that of replicas which ``%warm`` keeps."""
    builder: Builder


async def prepare(
    parsed: Parsed,
    program: Program,
    backend: Backend,
    front: FrontEnd,
    registry: Registry,
    owner: Owner,
    settings: Settings,
    warm: WarmPool | None,
) -> Prepared:
    """Prepare the job of a cell or file.

    Args:
        parsed: The cell or file.
        program: Where the program is and how it starts.
        backend: Runs the job.
        front: Receives notices.
        registry: Finds plug-ins.
        owner: Owner of the job.
        settings: The default builder, volumes of all cells, and whether replicas can be inspected.
        warm: Keeps replicas for later cells; None if no later cell comes.

    Raises:
        UsageError: The cell asks for something that does not exist.
        EnvironmentFault: This machine cannot run it.
    """
    spec = parsed.spec
    builder, chosen = selection.builder(spec, backend, registry, settings), backend
    if spec.warm is not None:
        from ciao_kernel.session.warm.backend import WarmBackend  # late: few cells need it

        backend = WarmBackend(backend, warm, settings, registry.table)
    passed_over = await why_passed_over(spec, backend, settings, front.console)
    plan = await planning.make_plan(
        parsed, program, registry, owner, settings, front.variables, passed_over
    )
    plan, notes = job_volumes.with_volumes(plan, settings, chosen, registry.table)
    for note in notes:
        front.show(note)
    horovod.check(plan)
    await backend.check(plan)
    for note in planning.delivery_notices(plan):
        front.show(note)
    # Local replicas have the kernel's environment, those of a cluster do not.
    here = not backend.outlives_kernel
    environment = os.environ if here else ()
    if not here and (note := success_note(plan)):
        front.show(note)
    own_python = here and not (spec.python or settings.python)
    if note := keras_note(spec, parsed.code, environment, here=own_python):
        front.show(note)
    return Prepared(plan, backend, builder)
