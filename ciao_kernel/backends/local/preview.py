"""The text of ``%dryrun``: what would run, and nothing is."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ciao_kernel.model import Replica
from ciao_kernel.plugins import Plan


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """What ``%dryrun`` shows of one replica."""

    replica: Replica
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def text(plan: Plan, replicas: tuple[ReplicaPlan, ...], backend: str) -> str:
    """Return files, commands and environment of every replica, as a shell would read them.

    What the kernel's own environment adds is not shown: it is the same for all replicas.
    """
    lines = [f"would run on {backend}:", "", "header:"]
    lines += [f"  {line}" for line in plan.header.splitlines()]
    lines += ["", "files:"]
    lines += [f"  {file.path}  {file.size:,} bytes" for file in plan.source.all()]
    for one in replicas:
        lines += ["", f"{one.replica}:", f"  {shlex.join(one.command)}"]
        lines += [f"    {name}={shlex.quote(value)}" for name, value in one.env]
    return "\n".join(lines)
