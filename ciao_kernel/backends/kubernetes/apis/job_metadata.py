"""Labels and annotations, by which any kernel or terminal finds a job and its objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import replica_list
from ciao_kernel.backends.kubernetes.object_fields import get
from ciao_kernel.magics import stored_fields
from ciao_kernel.model import Job, Manifest, Replica

BACKEND = "kubernetes"

MANAGED = "app.kubernetes.io/managed-by"
OURS = f"{MANAGED}=ciao"
JOB = apis.JOB.job_label
RUN = "ciao-kernel/run"
"""Unique identifier of a submission: it identifies the objects if an answer gets lost."""
UNOWNED = "ciao-kernel/unowned"
"""Label of an object that was created before its job, until the job owns it."""
TRY = "ciao-kernel/try"
"""Number of a job's try, from the second on."""
FIRST_UID = "ciao-kernel/first-uid"
"""Uid of a job's first try, from the second on: the logs of all tries are in one folder."""
SUBMITTED = "ciao-kernel/submitted"
"""The spec of a job with ``%retries`` as it was submitted; a queue changes the job's own."""
_OWNER = "ciao-kernel/owner"
_FRAMEWORK = "ciao-kernel/framework"
_DECIDER = "ciao-kernel/decider"
_ENDLESS = "ciao-kernel/endless"
_PROGRAM = "ciao-kernel/program"
_WORKDIR = "ciao-kernel/workdir"
_HEADER = "ciao-kernel/header"
_DETACHED = "ciao-kernel/detached"
_MADE_OF = "ciao-kernel/made-of"
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")

_ALL = "all"
"""Value of the annotation of the decider for jobs that succeed when all replicas do."""


def labels(job: str) -> dict[str, str]:
    """Return the labels of everything that belongs to a job."""
    return {MANAGED: "ciao", JOB: job}


def notes(job: Job, run: str, decider: Replica | None, endless: Iterable[str]) -> dict[str, str]:
    """Return annotations with the properties of a job for which the cluster has no field.

    Args:
        job: The job.
        run: For :data:`RUN`.
        decider: The replica whose success is the job's success; None means all replicas.
        endless: Roles that never end by themselves.
    """
    # A program in a package is below the working directory.
    below = job.workdir != job.program.rpartition("/")[0]
    return {
        **({_WORKDIR: job.workdir} if below else {}),
        RUN: run,
        _OWNER: job.owner,
        _FRAMEWORK: job.framework,
        replica_list.ANNOTATION: replica_list.render(job.replicas),
        _DECIDER: str(decider or _ALL),
        _ENDLESS: " ".join(sorted(endless)),
        _PROGRAM: job.program,
        _HEADER: job.header,
        _DETACHED: str(job.detached).lower(),
        **({_MADE_OF: json.dumps(dict(job.made_of))} if job.made_of else {}),
    }


def source_notes(job: Job, run: str) -> dict[str, str]:
    """Return annotations that tell whose an object beside a job is, even without the job."""
    return {RUN: run, _OWNER: job.owner}


def is_ours(item: Manifest) -> bool:
    """Return whether ciao created an object."""
    return bool(get(item, "metadata", "labels", MANAGED) == "ciao")


def user(item: Manifest) -> str:
    """Return the user and machine that created a job or its source: ``ada@laptop``."""
    return _annotation(item, _OWNER).partition(" ")[0]


def run(item: Manifest) -> str:
    """Return the unique identifier of the submission that created an object."""
    return _annotation(item, RUN)


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
    replicas = replica_list.parse(notes[replica_list.ANNOTATION])
    return Job(
        name=meta["name"],
        backend=BACKEND,
        framework=notes.get(_FRAMEWORK, ""),
        replicas=replicas,
        created=created,
        place=meta["namespace"],
        kind_of_place="namespace",
        resource=resource,
        uid=str(meta.get("uid") or ""),
        run=notes.get(RUN, ""),
        program=notes.get(_PROGRAM, ""),
        root=notes.get(_WORKDIR, ""),
        **stored_fields.job_fields(notes.get(_HEADER, "")),
        tries=int(notes.get(TRY, "1")),
        first_uid=_uid(notes.get(FIRST_UID, "")),
        made_of=_pairs(notes.get(_MADE_OF, "{}")),
        owner=notes.get(_OWNER, ""),
        detached=notes.get(_DETACHED) == "true",
    )


def _uid(text: str) -> str:
    """Return a uid of an annotation; it names a folder here.

    Raises:
        ValueError: It cannot be one.
    """
    if text and not _UID.fullmatch(text):
        raise ValueError("not a uid")
    return text


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and values of an annotation; nothing if it has another form."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    found = told.items() if isinstance(told, dict) else ()
    return tuple((name, value) for name, value in found if isinstance(value, str))


def with_kind(item: Manifest, job: Job) -> Manifest:
    """Return a job's object with its kind, which items of a list of Kubernetes' own kinds lack."""
    if item.get("kind") or job.resource != apis.JOB.plurals[0]:
        return item
    return {"apiVersion": f"{apis.JOB.group}/{apis.JOB.version}", "kind": "Job", **item}


def pods_of(job: Job, replica: Replica) -> list[str]:
    """Return selectors of a replica's pods, of which the first with a pod counts.

    Pods of other replicas, and of an earlier job of that name, may have the same labels.
    """
    return [
        ",".join(f"{name}={value}" for name, value in labels.items())
        for labels in apis.of_job(job).searches(job.name, replica)
    ]


def path(namespace: str, resource: str, name: str) -> str:
    """Return the path of a job's object; ``resource`` is its kind as written in paths."""
    return f"{apis.of_resource(resource).at(namespace, resource)}/{name}"


def collection(item: Manifest) -> str:
    """Return the path at which an object beside a job is created, such as a ConfigMap."""
    version = item["apiVersion"]
    at = "/api/v1" if version == "v1" else f"/apis/{version}"
    return f"{at}/namespaces/{item['metadata']['namespace']}/{item['kind'].lower()}s"


def decider(item: Manifest) -> Replica | None:
    """Return the replica whose success is the job's success, as recorded at its submission."""
    role, dash, index = _annotation(item, _DECIDER).rpartition("-")
    return Replica(role, int(index)) if dash and index.isdecimal() else None


def is_decided_by_all(item: Manifest) -> bool:
    """Return whether the job succeeds when all its replicas do, as recorded at its submission."""
    return _annotation(item, _DECIDER) == _ALL


def endless(item: Manifest) -> frozenset[str]:
    """Return the recorded roles that never end by themselves, such as a parameter server."""
    return frozenset(_annotation(item, _ENDLESS).split())


def container(pod: Manifest) -> str:
    """Return the name of the program's container; the pod may have other containers too."""
    from ciao_kernel.plugins import DEFAULT_CONTAINER  # not for a list without pods

    if named := _annotation(pod, DEFAULT_CONTAINER):
        return named
    try:
        return str(pod["spec"]["containers"][0]["name"])
    except (KeyError, IndexError, TypeError):
        return ""  # then the server takes the only container


def _annotation(item: Manifest, name: str) -> str:
    """Return an annotation; "" if it is missing."""
    return str((item["metadata"].get("annotations") or {}).get(name) or "")


def is_part_of(pod: Manifest, uid: str, run: str = "") -> bool:
    """Return whether a pod belongs to this job, not to another job of the same name.

    Args:
        pod: The pod.
        uid: The job's uid; "" if unknown.
        run: The submission of the job; "" if unknown.
    """
    # A Job owns the pod, or a Job of a JobSet, which the job owns.
    if apis.of_pod(pod) in (apis.TRAINER, apis.MPI_OPERATOR):
        return not run or not (told := _annotation(pod, RUN)) or told == run
    owners = pod["metadata"].get("ownerReferences")
    found = [one.get("uid") for one in owners or () if isinstance(one, dict)]
    return not uid or not found or uid in found


def replica(pod: Manifest) -> Replica | None:
    """Return the replica of a pod; None if its labels do not name it."""
    return apis.of_pod(pod).replica(pod)


def selector(job: Job) -> str:
    """Return the selector of the pods of a job; also pods of earlier jobs of that name have it."""
    return f"{apis.of_job(job).job_label}={job.name}"


def job_name(pod: Manifest) -> str:
    """Return the name of a pod's job; "" if its labels do not name it."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(apis.of_pod(pod).job_label) or "")
