"""Directives for the start of the program in a replica: launcher, processes, interpreter."""

from __future__ import annotations

from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.directive import Directive
from ciao_kernel.model import Runner


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "runner",
            "runner",
            value_types.choice_of((r.value for r in Runner), Runner),
            "Launcher of the program; auto is torchrun for PyTorch, XGBoost's tracker, or python.",
            "%runner=python",
            default="auto",
        ),
        Directive(
            "nprocPerNode",
            "nproc_per_node",
            numeric_types.Count(1, 128),
            "Processes that torchrun starts in a replica.",
            "%nprocPerNode=2",
            default="1 per GPU of the replica, 1 without GPUs",
        ),
        Directive(
            "slots",
            "slots",
            numeric_types.Count(1, 128),
            "Ranks that mpirun starts in a worker, for mpi.",
            "%slots=2",
            default="1",
        ),
        Directive(
            "min",
            "min_workers",
            numeric_types.Count(1),
            "Makes a PyTorch job elastic: the fewest workers with which it goes on after a loss.",
            "%worker=3;%min=2",
            default="1 with %max",
        ),
        Directive(
            "max",
            "max_workers",
            numeric_types.Count(1),
            "Makes a PyTorch job elastic: the most workers, if it is scaled up on a cluster.",
            "%worker=3;%max=4",
            default="%worker with %min",
        ),
        Directive(
            "python",
            "python",
            value_types.Word(
                "the path or the name of a Python interpreter", value_types.Suggestions.INTERPRETERS
            ),
            "Interpreter of the replicas, on this machine or in their image.",
            "%python=~/envs/tf/bin/python",
            of_pods=True,
            default="the kernel's own; in an image python3",
        ),
    ]
