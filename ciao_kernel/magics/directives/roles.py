"""Directives for the framework of a job, and for the number of replicas of each role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.directive import Directive, Scope

_ROLES = {
    "chief": "Number of chiefs (0 or 1): the replica that leads and ends a TensorFlow job.",
    "master": "Number of masters: rank 0 (always 1), or TensorFlow's old name for chief.",
    "ps": "Number of parameter servers. They never end by themselves; the job's end stops them.",
    "worker": "Number of workers.",
    "evaluator": "Number of evaluators: they watch the checkpoints and are not part of training.",
    "launcher": "Number of launchers (always 1): the replica that runs mpirun.",
}


def directives(frameworks: Mapping[str, Iterable[str]]) -> list[Directive]:
    """Return the entries of the table, in the order of display.

    Args:
        frameworks: Roles by framework.
    """
    texts = dict(_ROLES)
    for role in (role for roles in frameworks.values() for role in roles):
        texts.setdefault(role, f"Number of replicas of the role {role}.")
    roles = [
        Directive(role, role, numeric_types.Count(), text, f"%{role}=1", Scope.ROLE)
        for role, text in texts.items()
    ]
    return [
        Directive(
            "framework",
            "framework",
            value_types.choice_of(frameworks),
            "The training framework. It makes a cell or a file a job.",
            "%framework=tensorflow",
        ),
        *roles,
    ]
