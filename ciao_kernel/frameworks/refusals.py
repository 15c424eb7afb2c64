"""Refusals of directives that a framework cannot follow, with the same words for all frameworks."""

from __future__ import annotations

from ciao_kernel.errors import SpecError
from ciao_kernel.model import JobSpec, RestartPolicy, Runner, SuccessPolicy


def check_launcher(spec: JobSpec, job: str, *, slots: bool = False) -> None:
    """Refuse the options of torchrun, for frameworks other than PyTorch, and those of mpirun.

    Args:
        spec: The header's contents.
        job: The job with its article, such as ``a TensorFlow job``.
        slots: Whether mpirun starts the program.

    Raises:
        SpecError: The header asks for torchrun, its processes, its elastic jobs or mpirun.
    """
    if spec.runner is Runner.TORCHRUN:
        raise SpecError(
            f"torchrun starts PyTorch, but this is {job}.",
            "Leave out %runner.",
            directive="runner",
        )
    if spec.nproc_per_node is not None:
        raise SpecError(
            f"processes per node are for torchrun, but this is {job}.",
            "Ask for more ranks per worker with %slots."
            if slots
            else "Ask for more workers with %worker.",
            directive="nprocPerNode",
        )
    if spec.elastic:
        named = "min" if spec.min_workers is not None else "max"
        raise SpecError(
            f"only PyTorch jobs are elastic, but this is {job}.",
            f"Leave out %{named}.",
            directive=named,
        )
    if not slots:
        check_slots(spec, job, "Ask for more workers with %worker.")


def check_slots(spec: JobSpec, job: str, remedy: str) -> None:
    """Refuse the ranks of mpirun, for frameworks other than MPI.

    Args:
        spec: The header's contents.
        job: The job with its article.
        remedy: The hint.

    Raises:
        SpecError: The header asks for them.
    """
    if spec.slots is not None:
        raise SpecError(f"slots are for mpirun, but this is {job}.", remedy, directive="slots")


def check_success_policy(spec: JobSpec, job: str, rule: SuccessPolicy, words: str) -> None:
    """Refuse a success policy other than the only one of the framework.

    Args:
        spec: The header's contents.
        job: The job with its article.
        rule: The framework's policy.
        words: The end of the sentence "a … job succeeds when".

    Raises:
        SpecError: The header asks for another policy.
    """
    if spec.cluster.success_policy not in (None, rule):
        raise SpecError(
            f"{job} succeeds when {words}; there is no other policy.",
            "Leave out %successPolicy.",
            directive="successPolicy",
        )


def check_restart_policy(spec: JobSpec, job: str) -> None:
    """Refuse ``ExitCode`` for kinds whose job would never end after an error of its program.

    The operator takes every failure under another policy than ``Never`` for a restart, but with
    ``ExitCode`` it starts no replica again that ended with a code below 128 (training-operator
    release-1.9, pkg/controller.v1/{jax,xgboost,paddlepaddle}/*, UpdateJobStatus).
    In the backend these kinds have ``exit_code_restarts`` (apis/operator_v1.py).

    Raises:
        SpecError: The header asks for ``ExitCode``.
    """
    if spec.cluster.restart_policy is RestartPolicy.EXIT_CODE:
        raise SpecError(
            f"with ExitCode, {job} would never end after an error of its program.",
            "Leave out %restartPolicy, or write %restartPolicy=OnFailure.",
            directive="restartPolicy",
        )
