"""One entry of the table of directives."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ciao_kernel.magics import value_types


class Scope(enum.Enum):
    """Where a directive may stand and what it speaks of."""

    ROLE = "a role"
    RESOURCE = "a role, or all roles"
    JOB = "the job"


@dataclass(frozen=True, slots=True)
class Directive:
    """One entry of the table."""

    name: str
    field: str
    """Field of JobSpec that takes the value, ``cluster.image`` for one of its ClusterSpec; of
    Resources for a RESOURCE; a role for a ROLE."""
    kind: value_types.Kind
    help: str
    example: str
    scope: Scope = Scope.JOB
    default: str = ""
    adds_up: bool = False
    """Several lines add to each other instead of contradicting each other."""

    @property
    def option(self) -> str:
        """Its name on a command line: ``--nproc-per-node``."""
        return "--" + "".join(f"-{c.lower()}" if c.isupper() else c for c in self.name)
