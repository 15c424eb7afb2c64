"""Write a header from a spec: the inverse of :mod:`ciao_kernel.magics.parse`."""

from __future__ import annotations

from operator import attrgetter

from ciao_kernel.magics.header import Style
from ciao_kernel.magics.table import Scope, Table
from ciao_kernel.magics.value_types import Pairs
from ciao_kernel.model import JobSpec, Resources


def render(spec: JobSpec, table: Table, style: Style = Style.CELL, *, secrets: bool = True) -> str:
    """Return a header that parses to ``spec`` again, with one directive per line.

    Without ``secrets`` the header is only for display: values of variables are masked.
    """
    lines = [f"%framework={spec.framework}", *_resources(spec.resources, table)]
    for group in spec.groups:
        pieces = [f"%{group.role}={group.count}", *_resources(group.resources, table)]
        pieces += [
            f"%{entry.name}={entry.kind.render(own)}"
            for entry in table.entries
            if entry.scope is Scope.JOB_OR_ROLE and (own := getattr(group, entry.field))
        ]
        lines.append(";".join(pieces))
    default = JobSpec(spec.framework)
    for entry in table.entries:
        of_job = entry.scope in (Scope.JOB, Scope.JOB_OR_ROLE)
        if not of_job or entry.name == "framework":
            continue
        field = attrgetter(entry.field)
        value = field(spec)
        if value != field(default):
            hidden = isinstance(entry.kind, Pairs) and not secrets
            text = Pairs.mask(value) if hidden else entry.kind.render(value)
            lines.append(f"%{entry.name}={text}" if text else f"%{entry.name}")
    return "".join(f"{style.comment}{line}\n" for line in lines)


def _resources(resources: Resources, table: Table) -> list[str]:
    return [
        f"%{entry.name}={entry.kind.render(value)}"
        for entry in table.entries
        if entry.scope is Scope.RESOURCE and (value := getattr(resources, entry.field)) is not None
    ]
