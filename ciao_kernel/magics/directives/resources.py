"""Directives for what a replica gets: processors, memory and GPUs."""

from __future__ import annotations

from ciao_kernel.magics import numeric_types
from ciao_kernel.magics.directive import Directive, Scope


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "cpu",
            "cpu",
            numeric_types.Cpus(),
            "Processors for each replica: a limit on a cluster, without effect on this machine.",
            "%worker=2;%cpu=2",
            Scope.RESOURCE,
        ),
        Directive(
            "memory",
            "memory",
            numeric_types.Memory(),
            "Memory for each replica: a limit on a cluster, without effect on this machine.",
            "%worker=2;%memory=4Gi",
            Scope.RESOURCE,
        ),
        Directive(
            "gpu",
            "gpu",
            numeric_types.GpuCount(),
            "GPUs for each replica; on this machine they are assigned with CUDA_VISIBLE_DEVICES.",
            "%worker=2;%gpu=1",
            Scope.RESOURCE,
        ),
    ]
