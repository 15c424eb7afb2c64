"""Labels and annotations, by which any kernel or terminal finds a job and its objects."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ciao_kernel.magics import plots
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.plugins import DEFAULT_CONTAINER

BACKEND = "kubernetes"
API = "/apis/kubeflow.org/v1"
KINDS = ("tfjobs", "pytorchjobs")
"""The kinds of the built-in frameworks, as written in paths."""

MANAGED = "app.kubernetes.io/managed-by"
OURS = f"{MANAGED}=ciao"
JOB = "ciao-kernel/job"
RUN = "ciao-kernel/run"
"""Unique identifier of a submission: it identifies the objects if an answer gets lost."""
_OWNER = "ciao-kernel/owner"
_FRAMEWORK = "ciao-kernel/framework"
_REPLICAS = "ciao-kernel/replicas"
_DECIDER = "ciao-kernel/decider"
_ENDLESS = "ciao-kernel/endless"
_PROGRAM = "ciao-kernel/program"
_HEADER = "ciao-kernel/header"
_DETACHED = "ciao-kernel/detached"

_ROLE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_MOST = 10_000

# Labels of the operator on each pod (training-operator, pkg/apis/kubeflow.org/v1/common_types.go).
OPERATOR_JOB = "training.kubeflow.org/job-name"
OPERATOR_ROLE = "training.kubeflow.org/replica-type"
OPERATOR_INDEX = "training.kubeflow.org/replica-index"


def labels(job: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a job."""
    return {MANAGED: "ciao", JOB: job}


def notes(job: Job, run: str, decider: Replica, endless: Iterable[str]) -> dict[str, str]:
    """Return annotations with the properties of a job for which the cluster has no field.

    Args:
        job: The job.
        run: For :data:`RUN`.
        decider: The replica whose success is the job's success.
        endless: Roles that never end by themselves.
    """
    counts: dict[str, int] = {}
    for replica in job.replicas:
        counts[replica.role] = counts.get(replica.role, 0) + 1
    return {
        RUN: run,
        _OWNER: job.owner,
        _FRAMEWORK: job.framework,
        _REPLICAS: " ".join(f"{role}={count}" for role, count in counts.items()),
        _DECIDER: str(decider),
        _ENDLESS: " ".join(sorted(endless)),
        _PROGRAM: job.program,
        _HEADER: job.header,
        _DETACHED: str(job.detached).lower(),
    }


def job(item: Manifest, created: float, resource: str = "") -> Job:
    """Return the job of an object; anybody may have written its annotations.

    Args:
        item: The object.
        created: Seconds since the epoch.
        resource: Its kind, as written in paths.

    Raises:
        KeyError, ValueError: The object is not a job of ciao.
    """
    meta = item["metadata"]
    notes = meta.get("annotations") or {}
    replicas: list[Replica] = []
    for word in notes[_REPLICAS].split():
        role, _, count = word.partition("=")
        # Anybody in the namespace may write this value, which becomes part of paths.
        if not _ROLE.fullmatch(role) or int(count) > _MOST - len(replicas):
            raise ValueError(f"invalid replicas: {word[:40]!r}")
        replicas += [Replica(role, index) for index in range(int(count))]
    return Job(
        name=meta["name"],
        backend=BACKEND,
        framework=notes.get(_FRAMEWORK, ""),
        replicas=tuple(replicas),
        created=created,
        place=meta["namespace"],
        kind_of_place="namespace",
        resource=resource,
        uid=str(meta.get("uid") or ""),
        program=notes.get(_PROGRAM, ""),
        header=notes.get(_HEADER, ""),
        plot=plots.asked(notes.get(_HEADER, "")),
        owner=notes.get(_OWNER, ""),
        detached=notes.get(_DETACHED) == "true",
    )


def path(namespace: str, resource: str, name: str) -> str:
    """Return the path of a job's object; ``resource`` is its kind as written in paths."""
    return f"{API}/namespaces/{namespace}/{resource}/{name}"


def collection(item: Manifest) -> str:
    """Return the path at which a job's ConfigMap or Secret is created."""
    return f"/api/v1/namespaces/{item['metadata']['namespace']}/{item['kind'].lower()}s"


def decider(item: Manifest) -> Replica | None:
    """Return the replica whose success is the job's success, as recorded at its submission."""
    role, dash, index = _annotation(item, _DECIDER).rpartition("-")
    return Replica(role, int(index)) if dash and index.isdecimal() else None


def endless(item: Manifest) -> frozenset[str]:
    """Return the recorded roles that never end by themselves, such as a parameter server."""
    return frozenset(_annotation(item, _ENDLESS).split())


def container(pod: Manifest) -> str:
    """Return the name of the program's container; the pod may have other containers too."""
    if named := _annotation(pod, DEFAULT_CONTAINER):
        return named
    try:
        return str(pod["spec"]["containers"][0]["name"])
    except (KeyError, IndexError, TypeError):
        return ""  # then the server takes the only container


def _annotation(item: Manifest, name: str) -> str:
    """Return an annotation; "" if it is missing."""
    return str((item["metadata"].get("annotations") or {}).get(name) or "")


def is_part_of(pod: Manifest, uid: str) -> bool:
    """Return whether a pod belongs to this job, not to an earlier job of the same name."""
    owners = pod["metadata"].get("ownerReferences")
    found = [one.get("uid") for one in owners or () if isinstance(one, dict)]
    return not uid or not found or uid in found


def replica(pod: Manifest) -> Replica | None:
    """Return the replica of a pod; None if its labels do not name it."""
    labels = pod["metadata"].get("labels")
    found = labels if isinstance(labels, dict) else {}
    role, index = str(found.get(OPERATOR_ROLE) or ""), str(found.get(OPERATOR_INDEX) or "")
    if role == "launcher" and not index:  # an MPIJob's launcher has no index
        index = "0"
    return Replica(role, int(index)) if _ROLE.fullmatch(role) and index.isdecimal() else None
