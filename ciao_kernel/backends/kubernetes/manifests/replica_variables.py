"""What the replicas of an Indexed Job know of each other: a ConfigMap with variables and addresses.

Its pods have one template, so the ConfigMap has the variables of all replicas, and each pod takes
those of its index (:mod:`.indexed_start`). The roles of a TrainJob get theirs the same way.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from ciao_kernel.backends.kubernetes.manifests import shell_start
from ciao_kernel.backends.kubernetes.manifests.indexed_rules import launcher_role, needs_all_workers
from ciao_kernel.backends.kubernetes.manifests.indexed_start import FILE
from ciao_kernel.backends.kubernetes.object_fields import of_literal
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Address, Manifest, Replica
from ciao_kernel.plugins import AnyLanguage, Launching, Plan

PORT = 23456
"""Port of every replica: each pod has an address of its own, so no other job uses the port."""
LONGEST_LABEL = 63
"""Characters of a label of a host name (RFC 1123)."""
_MOST_BYTES = 1_000_000
"""Size of the variables; a ConfigMap holds 1 MiB."""
_PATIENCE = 600
"""Seconds that a replica waits for the name of the deciding replica, at most."""
_SHORT_PATIENCE = 60
"""The same in a job that may outlive its first replica: the name ends with that replica's pod, so a
replica that starts or restarts after it would wait in vain."""


def config_map(
    plan: Plan, job: str, pods: Mapping[str, Manifest], known: Mapping[Replica, Address]
) -> Manifest:
    """Return the ConfigMap with the variables of all replicas; metadata has only its name.

    Args:
        plan: The program to run, with its options.
        job: Name of the job.
        pods: The pod of each role, as :func:`~.pod_template.pod_template` returns it.
        known: The address of each replica, in the order of their indexes.

    Raises:
        SpecError: They are too large.
    """
    return variables(job, files(plan, known, known, commands_apart(plan, known, pods)))


def commands_apart(
    plan: Plan, replicas: Iterable[Replica], pods: Mapping[str, Manifest]
) -> dict[int, list[str]]:
    """Return the commands of pods that run another one than their only template's, by index.

    Args:
        plan: The program to run, with its options.
        replicas: The replicas in the order of their indexes.
        pods: The pod of each role, as :func:`~.pod_template.pod_template` returns it.
    """
    # The only template has the command of the cell. A program reads these, not Kubernetes.
    apart = {*plan.spec.serve, launcher_role(plan)}
    return {
        index: [*map(of_literal, _command(pods[one.role]))]
        for index, one in enumerate(replicas)
        if one.role in apart
    }


def variables(job: str, data: Mapping[str, str]) -> Manifest:
    """Return a ConfigMap with files of variables; metadata has only its name.

    Raises:
        SpecError: They are too large.
    """
    text = "".join(data.values())
    _check_size(len(text.encode()))
    # For a ConfigMap that is created again under an old name, a kubelet may still serve the old
    # content from its cache, so the name depends on the content.
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{job}-replicas-{digest}"},
        "immutable": True,
        "data": dict(data),
    }


def addresses(job: str, replicas: Iterable[Replica], pods: str = "") -> dict[Replica, Address]:
    """Return the address of each replica; a single one needs no name.

    Args:
        job: Name of the job and of its Service.
        replicas: The replicas, in the order of their indexes.
        pods: Beginning of the host names of the pods; "" if it is the job's name.
    """
    found = tuple(replicas)
    if len(found) == 1:
        return {found[0]: Address("127.0.0.1", PORT)}
    return {one: Address(f"{pods or job}-{index}.{job}", PORT) for index, one in enumerate(found)}


def files(
    plan: Plan,
    replicas: Iterable[Replica],
    known: Mapping[Replica, Address],
    commands: Mapping[int, Sequence[str]] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the variables as files: for a shell if the image need not have Python.

    Args:
        plan: The program to run, with its options.
        replicas: The replicas of the pods, in the order of their indexes.
        known: The address of each replica of the job.
        commands: Commands of pods that run another one than their template's, by index.
    """
    decider = plan.framework.decider(plan.spec)
    outlives = decider is None or needs_all_workers(plan)
    first = known[decider or next(iter(known))].host if len(known) > 1 else ""
    patience = _SHORT_PATIENCE if outlives else _PATIENCE
    own = [_own(plan, one, known) for one in replicas]
    if isinstance(plan.framework, AnyLanguage):
        return shell_start.files(own, first, patience)
    told = {"first": first, "patience": patience, "replicas": own, "commands": dict(commands)}
    return {FILE: json.dumps(told)}


def check_size(plan: Plan, known: Mapping[Replica, Address]) -> None:
    """Check that a ConfigMap can hold the variables of all replicas.

    Those of one role have about the same variables; :func:`variables` counts them exactly.

    Raises:
        SpecError: They are too large.
    """
    last = {one.role: one for one in plan.spec.replicas()}
    counts = Counter(one.role for one in known)
    # A launcher's variables name all workers; a worker's may not.
    _check_size(
        sum(len(json.dumps(_own(plan, last[role], known))) * counts[role] for role in counts)
    )


def _own(plan: Plan, replica: Replica, known: Mapping[Replica, Address]) -> dict[str, str]:
    """Return the variables of a replica; those of the user win, as on this machine."""
    framework, users = plan.framework, dict(plan.spec.env)
    if isinstance(framework, Launching):
        made = framework.relay_environment(plan.spec, replica, known)
    else:
        made = framework.environment(plan.spec, replica, known)
    return {
        **{name: value for name, value in made.items() if name not in users},
        "CIAO_ROLE": replica.role,
        "CIAO_INDEX": str(replica.index),
        "CIAO_REPLICA": str(replica),
    }


def _command(pod: Manifest) -> Sequence[str]:
    command: Sequence[str] = pod["spec"]["containers"][0]["command"]
    return command


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise SpecError(
            f"the variables of all replicas have {size / 2**20:,.1f} MiB, and "
            "they come from a ConfigMap, which holds 1 MiB.",
            "Ask for fewer replicas; or use a cluster with the training operator.",
            directive="worker",
        )
