"""Refuses programs for Horovod, which no current environment can run."""

from __future__ import annotations

from importlib import util

from ciao_kernel.errors import SourceError
from ciao_kernel.plugins import Plan

_MODULE = "horovod"


def check(plan: Plan) -> None:
    """Refuse a program that imports Horovod, unless the user has chosen what it runs in.

    The last release is 0.28.1 of 2023, without wheels, and its C++14 does not compile with the
    headers of torch 2.1 and newer (github.com/horovod/horovod, issues 3996 and 4014).

    Args:
        plan: The program, with its options.

    Raises:
        SourceError: It imports Horovod.
    """
    spec, build = plan.spec, plan.spec.build
    chosen = spec.cluster.image or spec.python or build.base or build.dockerfile or build.conda_env
    if _MODULE in plan.source.imports and not chosen and not util.find_spec(_MODULE):
        raise SourceError(
            "the code imports horovod, whose last release is of 2023 and does not compile with "
            "torch 2.1 or newer.",
            "Use torch.distributed with %framework=pytorch, or MPI with %framework=mpi; on a "
            "cluster, %image can name an image that has Horovod.",
        )
