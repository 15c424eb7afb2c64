"""Plain Python: replicas of any program, with the addresses and ranks that it needs to connect."""

from __future__ import annotations

from collections.abc import Mapping

from ciao_kernel.frameworks import ranks, refusals
from ciao_kernel.frameworks.replicas import (
    at_least_one_worker,
    needs_no_package,
    no_decider,
    one_process,
    python_command,
)
from ciao_kernel.model import (
    Address,
    JobSpec,
    Replica,
    SuccessPolicy,
)

_JOB = "a Python job"


class Python:
    """``%framework=python``, for libraries that ciao does not know.

    The training operator has no kind for it: on a cluster its jobs are TrainJobs or Indexed Jobs.
    The image is the one of the Docker Official Images (https://hub.docker.com/_/python).
    """

    name = "python"
    roles = ("worker",)
    endless: frozenset[str] = frozenset()
    package = "sys"
    requirement = "sys"
    image = "python:3.13"

    decider = staticmethod(no_decider)
    needs_package = staticmethod(needs_no_package)
    command = staticmethod(python_command)
    processes = one_process

    def complete(self, spec: JobSpec) -> JobSpec:
        """Check the options; a header without workers means one."""
        refusals.check_launcher(spec, _JOB)
        refusals.check_success_policy(spec, _JOB, SuccessPolicy.ALL_WORKERS, "all its workers do")
        return at_least_one_worker(spec)

    def environment(
        self, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
    ) -> dict[str, str]:
        """Return the rank, the number of replicas and their hosts."""
        return ranks.variables(replica, addresses)
