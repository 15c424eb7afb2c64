"""One entry of the table of directives."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ciao_kernel.magics import value_types


class Scope(enum.Enum):
    """Scope of a directive: it determines the allowed position."""

    ROLE = "a role"
    RESOURCE = "a role, or all roles"
    JOB_OR_ROLE = "the job, or a role"
    JOB = "the job"


@dataclass(frozen=True, slots=True)
class Directive:
    """One entry of the table."""

    name: str
    field: str
    """Field of JobSpec for the value, or ``cluster.image`` for a field of its ClusterSpec; a field
    of Resources for a RESOURCE; a role for a ROLE; a field of JobSpec and of ReplicaGroup for a
    JOB_OR_ROLE, which is repeatable."""
    kind: value_types.Kind
    help: str
    example: str
    scope: Scope = Scope.JOB
    default: str = ""
    repeatable: bool = False
    """True if several lines are combined; otherwise different values are an error."""
    option_word: str = ""
    """The option's name, where another option of commands has that of the directive."""

    of_pods: bool = False
    """True if it is for the pods of all roles: behind one of several roles it would be misread."""

    also_magic: bool = False
    """True if a common extension of IPython has a magic with this name: its arguments follow a
    space, as in ``%tensorboard --logdir runs``, and then the line is IPython's."""

    @property
    def option(self) -> str:
        """Return the name on a command line: ``--nproc-per-node``."""
        name = self.option_word or self.name
        return "--" + "".join(f"-{c.lower()}" if c.isupper() else c for c in name)
