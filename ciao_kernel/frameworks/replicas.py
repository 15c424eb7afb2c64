"""Code that several frameworks share: equal workers, one master, plain Python, manifests.

A framework takes a function as its method: ``command = staticmethod(python_command)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ciao_kernel.errors import SpecError
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Manifest,
    Replica,
    ReplicaGroup,
    RestartPolicy,
)
from ciao_kernel.plugins import DEFAULT_CONTAINER, Framework


def at_least_one_worker(spec: JobSpec) -> JobSpec:
    """Return the spec of a job whose only role is the worker; a header without roles means one.

    Raises:
        SpecError: The header asks for no worker at all.
    """
    if not spec.groups:
        return replace(spec, groups=(ReplicaGroup("worker", 1),))
    if not spec.count("worker"):
        raise SpecError(
            "all roles have a count of 0: nothing would run.",
            "Add workers, for example %worker=2.",
            directive="worker",
        )
    return spec


def one_master(spec: JobSpec, job: str) -> JobSpec:
    """Return the spec of a job of one master and workers.

    The master need not be written. Then it has the resources and volumes of the workers.

    Args:
        spec: The header's contents.
        job: The job with its article, such as ``a PyTorch job``.

    Raises:
        SpecError: The header asks for another number of masters.
    """
    said = {group.role: group for group in spec.groups}
    like = said.get("worker", ReplicaGroup("worker", 0))
    # It trains as the workers do, so it needs what they have.
    master = said.get("master", replace(like, role="master", count=1))
    if master.count != 1:
        raise SpecError(
            f"{job} has exactly one master (rank 0), but {master.count} are requested.",
            "Write %master=1, or leave it out; %worker sets the number of other replicas.",
            directive="master",
        )
    workers = [group for group in spec.groups if group.role == "worker" and group.count]
    return replace(spec, groups=(master, *workers))


def no_decider(spec: JobSpec) -> None:
    """Return None, as the ``decider`` of equal workers: each of them has to succeed."""
    return


def needs_no_package(spec: JobSpec) -> bool:
    """Return False, as the ``needs_package`` of a program that runs without a launcher."""
    return False


def python_command(spec: JobSpec, artifact: Artifact) -> tuple[str, ...]:
    """Return the ``command`` that runs the program with plain Python.

    ``-u`` because the operator sets PYTHONUNBUFFERED only for some kinds.
    """
    return (artifact.python, "-u", *artifact.program_words, *spec.args)


def one_process(
    framework: Framework, spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address]
) -> list[dict[str, str]]:
    """Return the variables of the replica, as the ``processes`` of a framework without a launcher.

    This function becomes a method as it is: ``processes = one_process``.

    Args:
        framework: The framework.
        spec: Result of its ``complete``.
        replica: The replica.
        addresses: Address of each replica of the job.
    """
    return [framework.environment(spec, replica, addresses)]


def replica_specs(
    spec: JobSpec, pods: Mapping[str, Manifest], titles: Mapping[str, str], container: str
) -> Manifest:
    """Return the ReplicaSpecs of a job (training-operator, common_types.go).

    Args:
        spec: The roles; roles without replicas are left out.
        pods: A pod template for each role.
        titles: The spelling of each role in this kind.
        container: The container name that this kind requires.
    """
    # Never: PyTorchJob's own default is OnFailure, which runs a program with a typo for ever.
    policy = spec.cluster.restart_policy or RestartPolicy.NEVER
    return {
        titles[group.role]: {
            "replicas": group.count,
            "restartPolicy": str(policy),
            "template": _named(pods[group.role], container),
        }
        for group in spec.groups
        if group.count
    }


def with_variables(pod: Manifest, variables: Mapping[str, str]) -> Manifest:
    """Return a pod template whose program has further variables, except those that it has already.

    A value may refer to the variables of each replica, which are set before: ``$(CIAO_JOB)``,
    ``$(CIAO_ROLE)``, ``$(CIAO_INDEX)``, and to a host of the job: ``$(CIAO_JOB)-worker-0``
    (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/).

    Args:
        pod: A pod template; its first container runs the program.
        variables: Names and values. Those of ``%envvar`` take precedence, and those of the operator
            do: it adds its own behind them.
    """
    env = pod["spec"]["containers"][0].get("env") or []
    known = {one["name"] for one in env}
    more = [{"name": n, "value": v} for n, v in variables.items() if n not in known]
    return with_program(pod, env=[*env, *more])


def with_program(pod: Manifest, **changed: Any) -> Manifest:
    """Return a pod template with other fields in the container that runs its program.

    Args:
        pod: A pod template; its first container runs the program.
        changed: The fields and their values.
    """
    first, *others = pod["spec"]["containers"]
    return {**pod, "spec": {**pod["spec"], "containers": [{**first, **changed}, *others]}}


def with_start(pod: Manifest, program: str) -> Manifest:
    """Return a pod template in which a text of Python runs before the program, and executes it.

    Without a command it is unchanged: only the job's kind is asked for then.

    Args:
        pod: A pod template; the first word of its program's command is the interpreter.
        program: The text; its arguments are the command.
    """
    if not (command := pod["spec"]["containers"][0].get("command")):
        return pod
    return with_program(pod, command=[command[0], "-I", "-S", "-c", program, *command])


def _named(pod: Manifest, container: str) -> Manifest:
    first, *others = pod["spec"]["containers"]
    containers = [{"name": container, **first}, *others]
    # kubectl and ciao show this container if others are added to the pod.
    notes = {**(pod["metadata"].get("annotations") or {}), DEFAULT_CONTAINER: container}
    return {
        "metadata": {**pod["metadata"], "annotations": notes},
        "spec": {**pod["spec"], "containers": containers},
    }
