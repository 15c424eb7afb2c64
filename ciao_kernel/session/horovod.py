"""Refuses programs for Horovod, which no current environment can run."""

from __future__ import annotations

from ciao_kernel.errors import SourceError
from ciao_kernel.plugins import Plan

_MODULE = "horovod"


def check(plan: Plan) -> None:
    """Refuse a program that imports Horovod, unless the cell names an image for it.

    The last release is 0.28.1 of 2023, without wheels, and its C++14 does not compile with the
    headers of torch 2.1 and newer (github.com/horovod/horovod, issues 3996 and 4014).

    Args:
        plan: The program, with its options.

    Raises:
        SourceError: It imports Horovod.
    """
    if _MODULE in plan.source.imports and not plan.spec.cluster.image:
        raise SourceError(
            "the code imports horovod, whose last release is of 2023 and does not compile with "
            "torch 2.1 or newer.",
            "Use torch.distributed with %framework=pytorch, or MPI with %framework=mpi; on a "
            "cluster, %image can name an image that has Horovod.",
        )
