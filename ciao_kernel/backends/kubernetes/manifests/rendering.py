"""The protocol between :mod:`.manifest` and the modules that write a job for one API.

Each module of an API ends with its :class:`Rendering`; ``manifest`` has the table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ciao_kernel.backends.kubernetes.manifests.job_objects import Shared
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Job, Manifest
from ciao_kernel.plugins import JobManifest, Plan

Pods = Mapping[str, Manifest]
"""The pod of each role, as :func:`~.pod_template.pod_template` returns it."""
_FOR_RETRIES = 600
"""Seconds beyond the grace period for which a failed job stays, to be started again."""


@dataclass(frozen=True, slots=True)
class Request:
    """A job to write."""

    plan: Plan
    """The program to run, with its options."""
    job: Job
    """Its name, place and replicas."""
    settings: Settings
    """Time to live, policies, and the scheduler of gangs."""
    python: str
    """The interpreter in the image; "" if the framework needs none."""
    run: str
    """Unique identifier of the submission."""
    fields: Fields | None = None
    """What a TrainJob can change in a runtime of the cluster; None if it brings its own."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """The parts of a job that depend on its API."""

    kind: JobManifest
    spec: Manifest
    beside: tuple[Manifest, ...] = ()
    """Further objects; metadata has only their names."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the job."""
    shared: Shared | None = None
    """Of a TrainJob that uses a runtime of the cluster."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The functions that write jobs of one API; all are pure."""

    kind: Callable[[Plan], JobManifest]
    """Returns the kind of a job; its pods are empty."""
    render: Callable[[Request, Pods], Rendered]
    """Writes a job."""
    check: Callable[[Plan, Settings], None] = lambda plan, settings: None
    """Raises SpecError if a directive does not fit; the server checks the rest."""
    one_template: bool = False
    """Whether all replicas have one pod template, that of the role which runs the cell."""


def time_to_live(plan: Plan, settings: Settings) -> int:
    """Return the seconds for which a finished job stays: ``ttlSecondsAfterFinished``.

    A failed try of a job with ``%retries`` is there until its pods have ended and its follower has
    made the next one: without its object it looks like a job that somebody has deleted.

    Args:
        plan: The program to run, with its options.
        settings: Time to live and grace period of jobs that name none.
    """
    asked = plan.spec.cluster.ttl
    ttl = int(settings.ttl) if asked is None else asked
    if not plan.spec.retries:
        return ttl
    return max(ttl, int(settings.grace(plan.spec.grace)) + _FOR_RETRIES)


def refuse_ttl(plan: Plan, message: str) -> None:
    """Refuse a time to live, for an API whose finished jobs cannot have one.

    Args:
        plan: The program to run, with its options.
        message: The reason, in one sentence.

    Raises:
        SpecError: The cell has ``%ttl``.
    """
    if plan.spec.cluster.ttl is not None:
        raise SpecError(
            message,
            "Leave out %ttl, and delete the job with `ciao delete`; "
            "`ciao delete --finished --older 7d` removes old ones.",
            directive="ttl",
        )
