"""Merge of command-line options and the header of a file into one spec."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import fields, replace
from typing import TypeVar

from ciao_kernel.errors import SpecError
from ciao_kernel.magics.directives.volumes import check_apart
from ciao_kernel.model import (
    BuildSpec,
    ClusterSpec,
    JobSpec,
    ReplicaGroup,
    Resources,
    RestartPolicy,
    Volume,
)
from ciao_kernel.plugins import AnyLanguage, Framework, Serving

_Spec = TypeVar("_Spec", ClusterSpec, BuildSpec)


def check_roles(spec: JobSpec, framework: Framework) -> None:
    """Check that the header and the options use roles of the same framework.

    Raises:
        SpecError: The framework lacks a role.
    """
    for group in spec.groups:
        if group.role not in framework.roles:
            raise SpecError(
                f"{framework.name} has no replicas of the role {group.role}.",
                f"It has {', '.join(framework.roles)}.",
                directive=group.role,
            )


def check_command(spec: JobSpec, framework: Framework) -> None:
    """Check that only a framework for any language has a command.

    Raises:
        SpecError: ``%command`` is given for a framework that starts the program by itself.
    """
    if spec.command and not isinstance(framework, AnyLanguage):
        raise SpecError(
            f"%command is for programs in any language, but {framework.name} runs the program "
            "itself.",
            "Leave out %command (%args has the arguments of the program), or write "
            "%framework=custom.",
            directive="command",
        )


def check_serve(spec: JobSpec, framework: Framework) -> None:
    """Check that the roles of ``%serve`` are in the job, and that the framework has a server.

    Raises:
        SpecError: A role cannot only serve.
    """
    if not spec.serve:
        return
    if not isinstance(framework, Serving):
        raise SpecError(
            f"{framework.name} has no server that a replica could run instead of the program.",
            "Leave out %serve: every replica then runs the program.",
            directive="serve",
        )
    known = framework.servers
    for role in spec.serve:
        if role not in known:
            near = difflib.get_close_matches(role, known, n=1)
            takes = f"%serve takes {' and '.join(known)}."
            raise SpecError(
                f"replicas of the role {role} cannot only serve.",
                f"Did you mean {near[0]}? {takes}" if near else takes,
                directive="serve",
            )
        if not spec.count(role):
            raise SpecError(
                f"this job has no {role} that could serve.",
                f"Add %{role}=1, or leave {role} out of %serve.",
                directive="serve",
            )


def check_backoff_limit(spec: JobSpec, completed: JobSpec, framework: Framework) -> None:
    """Check that ``%backoffLimit`` has restarts to count: without any it would have no effect.

    A limit of 0 says that nothing is started again, and may be in any job.

    Args:
        spec: The header and the options.
        completed: The same, completed by the framework, which may set the restart policy.
        framework: The framework of the job.

    Raises:
        SpecError: No failed program of the job is started again.
    """
    never = completed.cluster.restart_policy in (None, RestartPolicy.NEVER)
    if spec.warm is not None:  # refuses it by itself
        return
    if spec.cluster.backoff_limit and never:
        add = "Add %restartPolicy=OnFailure, or leave" if _may_restart(spec, framework) else "Leave"
        raise SpecError(
            "%backoffLimit counts restarts, and this job starts no failed program again.",
            f"{add} it out; %retries=3 starts the whole job again after the loss of a replica.",
            directive="backoffLimit",
        )


def _may_restart(spec: JobSpec, framework: Framework) -> bool:
    """Return whether the job may have a restart policy: some frameworks refuse every one."""
    cluster = replace(spec.cluster, restart_policy=RestartPolicy.ON_FAILURE)
    try:
        framework.complete(replace(spec, cluster=cluster))
    except SpecError as error:
        return error.directive != "restartPolicy"
    return True


def check_volumes(spec: JobSpec) -> None:
    """Check that header and options together have no two volumes of a replica in one folder.

    Raises:
        SpecError: Two are, or one is inside the other.
    """
    for group in spec.groups:
        seen: list[Volume] = []
        for one in spec.volumes_of(group.role):
            try:
                check_apart(one, seen)
            except ValueError as error:
                raise SpecError(
                    f"%volume cannot be {str(one)!r} in replicas of the role {group.role}: "
                    f"expected {error}.",
                    "Name another folder.",
                    directive="volume",
                ) from None
            seen.append(one)


def merge(spec: JobSpec, options: JobSpec, given: Collection[str]) -> JobSpec:
    """Override a header with options: each role count, resource, variable and directive alone.

    Args:
        spec: The header.
        options: The options.
        given: Fields that the options set (``detach``, ``cluster.image``), also to their defaults.
    """
    own = {field.name for field in fields(JobSpec)}
    changed = {name: getattr(options, name) for name in own.intersection(given)}
    if not options.volumes:
        changed.pop("volumes", None)  # those of a role may be given
    groups = {
        group.role: replace(
            group,
            resources=_over(group.resources, options.resources, clear=True),
            volumes=() if options.volumes else group.volumes,
        )
        for group in spec.groups
    }
    for group in options.groups:
        before = groups.get(group.role, ReplicaGroup(group.role, 0))
        groups[group.role] = replace(
            group,
            resources=_over(before.resources, group.resources),
            volumes=group.volumes or before.volumes,
        )
    changed["cluster"] = _inner("cluster", spec.cluster, options.cluster, given)
    changed["build"] = _inner("build", spec.build, options.build, given)
    changed["framework"] = options.framework
    changed["groups"] = tuple(groups.values())
    changed["resources"] = _over(spec.resources, options.resources)
    changed["env"] = tuple({**dict(spec.env), **dict(options.env)}.items())
    return replace(spec, **changed)


def _inner(part: str, below: _Spec, above: _Spec, given: Collection[str]) -> _Spec:
    """Override ``below`` with the given fields of ``above``."""
    names = [field.name for field in fields(above) if f"{part}.{field.name}" in given]
    return replace(below, **{name: getattr(above, name) for name in names})


def _over(below: Resources, above: Resources, *, clear: bool = False) -> Resources:
    """Override resources; with ``clear``, reset the fields that are set in ``above`` to None."""
    names = [field.name for field in fields(Resources)]
    given = {name: getattr(above, name) for name in names if getattr(above, name) is not None}
    return replace(below, **(dict.fromkeys(given) if clear else given))
