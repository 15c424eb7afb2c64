"""Notices about directives of a cell that apply to clusters only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from ciao_kernel.config import shown_name
from ciao_kernel.model import ClusterSpec
from ciao_kernel.plugins import Plan

_RESTARTS = ("restart_policy", "backoff_limit")
"""What the supervisor of a local job does too."""


def unused(plan: Plan) -> Iterator[str]:
    """Yield one sentence for each reason why directives have no effect on this machine."""
    spec = plan.spec
    plain = ClusterSpec()
    ours = (one.name for one in fields(ClusterSpec) if one.name not in _RESTARTS)
    idle = [name for name in ours if getattr(spec.cluster, name) != getattr(plain, name)]
    if names := [_name(plan, f"cluster.{name}") for name in idle]:
        apply = "it applies" if len(names) == 1 else "they apply"
        yield f"{_have(names)} no effect on this machine: {apply} to clusters only."
    named = not plan.written or "volumes" in plan.written
    if named and any(one.read_only for one in spec.all_volumes):
        yield (
            f"{_name(plan, 'volumes')}: :ro has no effect on this machine, where a volume is a "
            "link; local replicas can write to it."
        )
    if len(spec.shared_volumes) < len(spec.all_volumes):
        yield (
            f"{_name(plan, 'volumes')}: on this machine replicas of other roles find the volume "
            "too, because all share the program's folder."
        )
    wishes = sorted(spec.build.wishes - {"packages", "requirements"})
    if names := [_name(plan, f"build.{name}") for name in wishes]:
        yield f"{_have(names)} no effect on this machine: no image is built here."
    asked = [spec.asks(group.role) for group in spec.groups]
    used = [name for name in ("cpu", "memory") if any(getattr(one, name) for one in asked)]
    if names := [_name(plan, name) for name in used]:
        apply = "applies" if len(names) == 1 else "apply"
        yield (
            f"{' and '.join(names)} {apply} to clusters only; local replicas share this machine "
            "without limits."
        )


def _have(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'has' if len(names) == 1 else 'have'}"


def _name(plan: Plan, field: str) -> str:
    """Return a directive with its line, or its plain name if the plan has no cell."""
    return plan.written.get(field) or f"%{shown_name(field.rpartition('.')[2])}"
