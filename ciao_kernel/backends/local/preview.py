"""The text of ``%dryrun``: describes a run without starting it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ciao_kernel.backends.local.replica_plan import ReplicaPlan
from ciao_kernel.model import JobSpec, Replica, RestartPolicy
from ciao_kernel.plugins import Plan


def text(
    plan: Plan, replicas: tuple[ReplicaPlan, ...], backend: str, volumes: Sequence[str] = ()
) -> str:
    """Return files, volumes, commands and environment of every replica, in the syntax of a shell.

    A command of several lines is shown once if replicas share it.
    Variables from the kernel's own environment are not shown: they are the same for all replicas.
    """
    lines = [f"would run on {backend}:", "", "header:"]
    lines += [f"  {line}" for line in plan.header.splitlines()]
    if restarts := [one for one in (_restarts(plan.spec), _retries(plan.spec)) if one]:
        lines += ["", "restarts:", *(f"  {one}" for one in restarts)]
    lines += ["", "files:"]
    lines += [f"  {file.path}  {file.size:,} bytes" for file in plan.source.all()]
    if volumes:
        lines += ["", "volumes:", *(f"  {one}" for one in volumes)]
    long: dict[tuple[str, ...], Replica] = {}
    for one in replicas:
        command = shlex.join(one.command)
        if first := long.get(one.command):
            command = f"# the command of {first}"
        elif "\n" in command:
            long[one.command] = one.replica
        lines += ["", f"{one.replica}:", f"  {command}"]
        lines += [f"    {name}={shlex.quote(value)}" for name, value in one.env]
    return "\n".join(lines)


def _restarts(spec: JobSpec) -> str:
    """Return which replicas are started again, and how often; "" for ``Never``."""
    ends = {
        RestartPolicy.ON_FAILURE: "with an exit code other than 0",
        RestartPolicy.EXIT_CODE: "with an exit code of 128 or more, or by a signal,",
        RestartPolicy.ALWAYS: "in any way",
    }
    policy, limit = spec.cluster.restart_policy or RestartPolicy.NEVER, spec.restart_limit
    if policy not in ends:
        return ""
    count = f"instead of restart {max(1, limit)} the job fails" if limit is not None else "no limit"
    return f"a replica that ends {ends[policy]} is started again; {count}"


def _retries(spec: JobSpec) -> str:
    """Return when the whole job is started again; "" without ``%retries``."""
    if not spec.retries:
        return ""
    times = "once" if spec.retries == 1 else f"{spec.retries} times at most"
    return f"the job is started again, {times}, if another process kills a replica"
