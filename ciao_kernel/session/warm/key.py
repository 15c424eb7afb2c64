"""Key of warm replicas: what two cells must have in common to run in the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from ciao_kernel.config import Settings
from ciao_kernel.magics.table import Scope, Table
from ciao_kernel.model import DryRun, JobSpec
from ciao_kernel.plugins import Plan

_FILES = ("build.requirements", "build.conda_env", "build.dockerfile", "cluster.pod_patch")


@dataclass(frozen=True, slots=True)
class Key:
    """Properties of replicas that cannot be changed while they run."""

    spec: JobSpec
    settings: Settings
    backend: str
    folder: Path
    contents: tuple[str, ...]
    """Digests of the files that describe the replicas' environment."""

    def difference(self, other: Key, table: Table) -> str:
        """Return what is different in another key, as the user has written it; "" if nothing is."""
        if self == other:
            return ""
        if names := [f"%{name}" for name in dict.fromkeys(_different(self, other, table))]:
            return " and ".join(names)
        if self.settings != other.settings:
            return "a setting"
        return "the folder of the notebook" if self.folder != other.folder else "its header"


def key_of(plan: Plan, settings: Settings, backend: str) -> Key:
    """Return the key of a cell."""
    contents = []
    for field in _FILES:
        name = attrgetter(field)(plan.spec)
        content = b""
        if name and (plan.folder / name).is_file():
            content = (plan.folder / name).read_bytes()
        contents.append(hashlib.sha256(content).hexdigest())
    return Key(_fixed(plan.spec), settings, backend, plan.folder, tuple(contents))


def _fixed(spec: JobSpec) -> JobSpec:
    """Return a spec without what may differ between two runs."""
    return replace(
        spec,
        env=(),
        args=(),
        files=(),
        inputs=(),
        outputs=(),
        plot=(),
        follow=(),
        lines=None,
        usage=None,
        deadline=None,
        warm=None,
        dryrun=DryRun.NO,
    )


def _different(one: Key, other: Key, table: Table) -> Iterator[str]:
    old, new = one.spec, other.spec
    roles = dict.fromkeys(group.role for spec in (old, new) for group in spec.groups)
    for entry in table.entries:
        if entry.scope is Scope.ROLE:
            if old.count(entry.field) != new.count(entry.field):
                yield entry.name
        elif entry.scope is Scope.RESOURCE:
            field = attrgetter(entry.field)
            if any(field(old.asks(role)) != field(new.asks(role)) for role in roles):
                yield entry.name
        elif entry.scope is Scope.JOB_OR_ROLE:
            if any(old.volumes_of(role) != new.volumes_of(role) for role in roles):
                yield entry.name
        elif attrgetter(entry.field)(old) != attrgetter(entry.field)(new):
            yield entry.name
    for place, field_name in enumerate(_FILES):
        if one.contents[place] != other.contents[place]:
            yield next(entry.name for entry in table.entries if entry.field == field_name)
