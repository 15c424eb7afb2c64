"""The text of ``%dryrun``: describes a run without starting it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ciao_kernel.model import Replica
from ciao_kernel.plugins import Plan


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """One replica in the text of ``%dryrun``."""

    replica: Replica
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


def text(plan: Plan, replicas: tuple[ReplicaPlan, ...], backend: str) -> str:
    """Return files, commands and environment of every replica, in the syntax of a shell.

    Variables from the kernel's own environment are not shown: they are the same for all replicas.
    """
    lines = [f"would run on {backend}:", "", "header:"]
    lines += [f"  {line}" for line in plan.header.splitlines()]
    lines += ["", "files:"]
    lines += [f"  {file.path}  {file.size:,} bytes" for file in plan.source.all()]
    for one in replicas:
        lines += ["", f"{one.replica}:", f"  {shlex.join(one.command)}"]
        lines += [f"    {name}={shlex.quote(value)}" for name, value in one.env]
    return "\n".join(lines)
