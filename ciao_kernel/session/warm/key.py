"""Key of warm replicas: what two cells must have in common to run in the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path

from ciao_kernel.config import Settings, shown_name
from ciao_kernel.magics.table import Scope, Table
from ciao_kernel.model import DryRun, JobSpec
from ciao_kernel.plugins import Plan

_REQUIREMENTS, _DOCKERFILE = "build.requirements", "build.dockerfile"
_FILES = (_REQUIREMENTS, "build.conda_env", _DOCKERFILE, "cluster.pod_patch")
_BUILDS = "kubernetes"
"""The backend on which ``%dockerfile`` has an effect."""
_OF_CELLS = ("color", "lines", "usage", "output_rate", "output_limit", "line_limit", "silence")
_OF_KERNELS = ("shutdown_wait", "tensorboard_url")
_OF_RUNS = ("fetch_limit",)  # each brings its own
_BEFORE = ("local_replicas", "cache_days", "build_deadline", "build_cpu", "build_memory")
_RESOLVED = ("backend", "framework")  # other properties of a key have what they lead to
_OTHERS = (*_OF_CELLS, *_OF_KERNELS, *_OF_RUNS, *_BEFORE, *_RESOLVED, "origins")
"""Settings that reach neither the replicas nor their pods, nor those who follow them."""


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
        for name in (one.name for one in fields(Settings)):
            if getattr(self.settings, name) != getattr(other.settings, name):
                return f"the setting {shown_name(name)}"
        return "the folder of the notebook" if self.folder != other.folder else "its header"


def key_of(plan: Plan, settings: Settings, backend: str) -> Key:
    """Return the key of a cell.

    Args:
        plan: The cell.
        settings: The settings.
        backend: Name of the backend that has the replicas.

    Raises:
        SourceError: A file of the environment cannot be read, or is refused.
    """
    contents = (_content(field, plan, backend) for field in _FILES)
    digests = tuple(hashlib.sha256(one).hexdigest() for one in contents)
    return Key(_fixed(plan.spec), _fixed_settings(settings), backend, plan.folder, digests)


def _content(field: str, plan: Plan, backend: str) -> bytes:
    """Return what a file says of the environment, with the files that it names."""
    name, build = attrgetter(field)(plan.spec), plan.spec.build
    if not name:
        return b""
    if field == _REQUIREMENTS:
        from ciao_kernel.delivery.packages import requirements

        own = replace(build, packages=(), pip_index=None)  # these are part of the spec
        return requirements.read(own, plan.folder).key.encode()
    if field == _DOCKERFILE and backend == _BUILDS:
        from ciao_kernel.builders import dockerfile_context

        return dockerfile_context.digest(plan.folder, name).encode()
    return (plan.folder / name).read_bytes() if (plan.folder / name).is_file() else b""


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


def _fixed_settings(settings: Settings) -> Settings:
    """Return settings without what may differ between two runs."""
    built_in = Settings()
    return replace(settings, **{name: getattr(built_in, name) for name in _OTHERS})


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
