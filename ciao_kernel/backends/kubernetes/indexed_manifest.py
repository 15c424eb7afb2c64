"""A cell as an Indexed Job with its headless Service: pure functions that return dicts.

One Job has all replicas of all roles, so that its controller alone stops everything after the first
failure or after the success of the deciding replica, even if nobody follows the job. Its pods have
one template, so a pod learns its role from its index: a ConfigMap has the variables of all
replicas, and a short program in front of the framework's command takes those of its index.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ciao_kernel.backends.kubernetes import replica_list, shell_start
from ciao_kernel.backends.kubernetes.apis import JOB
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.pod_template import literal
from ciao_kernel.config import Settings
from ciao_kernel.errors import SpecError
from ciao_kernel.model import (
    Address,
    CleanPolicy,
    Job,
    Manifest,
    Replica,
    RestartPolicy,
    SuccessPolicy,
)
from ciao_kernel.plugins import (
    DEFAULT_CONTAINER,
    AnyLanguage,
    JobManifest,
    Launching,
    Plan,
    endless_roles,
)

KIND = JobManifest("batch/v1", "Job", "jobs", "program", {})
"""The kind of every Indexed Job; its spec is made by :func:`spec`."""

PORT = 23456
"""Port of every replica: each pod has an address of its own, so no other job uses the port."""
_FOLDER, _FILE = "/ciao-replicas", "replicas.json"
LONGEST_LABEL = 63
"""Characters of a label of a host name (RFC 1123)."""
_MOST_BYTES = 1_000_000
"""Size of the variables; a ConfigMap holds 1 MiB."""
_UNLIMITED = 2**31 - 1
_UNKNOWN = (RestartPolicy.ALWAYS, RestartPolicy.EXIT_CODE)
_PROGRAM_FAILED = range(1, 128)
"""Exit codes of a program that failed; larger ones are those of a replica that was ended."""
_PATIENCE = 600
"""Seconds that a replica waits for the name of the deciding replica, at most."""
_SHORT_PATIENCE = 60
"""The same in a job that may outlive its first replica: the name ends with that replica's pod, so a
replica that starts or restarts after it would wait in vain."""
_TAKE_VARIABLES = f"""\
import json, os, socket, sys, time
index = int(os.environ["JOB_COMPLETION_INDEX"])
with open("{_FOLDER}/{_FILE}") as file:
    told = json.load(file)
os.environ.update(told["replicas"][index])
"""
_ENTER = f"""\
{_TAKE_VARIABLES}try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    print(sys.argv[1], "cannot be run:", error.strerror, file=sys.stderr)
    sys.exit(127)
"""
"""Runs in a replica before a command of ``ciao exec``."""
START = f"""\
{_TAKE_VARIABLES}command = told["commands"].get(str(index)) or sys.argv[1:]
until = time.monotonic() + told["patience"]
while told["first"] and time.monotonic() < until:
    try:
        socket.getaddrinfo(told["first"], None)
        break
    except OSError:
        time.sleep(0.2)
os.execvp(command[0], command)
"""
"""Runs in the replica before the framework's command. The Job controller sets the index.

The name of the first replica exists as soon as its pod has an address. Programs that connect to it
at once would fail before, also in that replica itself: Paddle does not repeat a failed lookup."""

# The CRDs of Trainer 2.0 and 2.1 require the status, which Kubernetes itself adds.
_LOST = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
BEFORE = "before"
"""Fourth word of a command that does something before the rest of it, which is the program's."""
_ISOLATED = ("-I", "-S", "-c")
"""Options of Python. Neither packages nor variables of the program can affect those few lines."""


def check(plan: Plan, settings: Settings) -> None:
    """Check that an Indexed Job can run a cell.

    Raises:
        SpecError: A directive needs the training operator.
    """
    spec, cluster = plan.spec, plan.spec.cluster
    if name := differing(plan):
        raise SpecError(
            f"%{name} differs between {' and '.join(_sized_roles(plan))}, but the replicas of an "
            "Indexed Job all have the same resources.",
            f"Write %{name} on a line of its own, for all roles; or use a cluster with the "
            "training operator.",
            directive=name,
        )
    if cluster.restart_policy in _UNKNOWN and not spec.elastic:
        raise SpecError(
            f"an Indexed Job has no restart policy {cluster.restart_policy}.",
            "Write %restartPolicy=OnFailure or Never; or use a cluster with the training operator.",
            directive="restartPolicy",
        )
    if (spec.clean_policy or settings.clean_policy) is CleanPolicy.NONE:
        raise SpecError(
            "Kubernetes stops all replicas when an Indexed Job ends, so %cleanPolicy=none is not "
            "possible.",
            "Write %cleanPolicy=running; or use a cluster with the training operator.",
            directive="cleanPolicy",
        )
    longest = f"{plan.name or plan.framework.name + '-xxxxx'}-999-{len(spec.replicas()) - 1}"
    if len(longest) > LONGEST_LABEL:
        raise SpecError(
            f"the host names of the replicas, such as {longest}, would have more than "
            f"{LONGEST_LABEL} characters.",
            "Choose a shorter %name.",
            directive="name",
        )
    check_size(plan, addresses(longest.rpartition("-")[0], spec.replicas()))


def differing(plan: Plan) -> str:
    """Return the directive of a resource of which roles ask for different amounts; "" if none."""
    for name in ("cpu", "memory", "gpu"):
        if len({getattr(plan.spec.asks(role), name) for role in _sized_roles(plan)}) > 1:
            return name
    return ""


def _sized_roles(plan: Plan) -> list[str]:
    """Return the roles whose resources count."""
    apart = launcher_role(plan)
    return [group.role for group in plan.spec.groups if group.count and group.role != apart]


def launcher_role(plan: Plan) -> str:
    """Return the role of a replica that starts the program in the others; "" if there is none.

    It needs few resources, and gets those of the others.
    """
    decider = plan.framework.decider(plan.spec)
    return decider.role if decider and isinstance(plan.framework, Launching) else ""


def template_role(plan: Plan) -> str:
    """Return the role whose command is in the only template: the first that runs the cell."""
    return next(
        group.role
        for group in plan.spec.groups
        if group.count and group.role not in plan.spec.serve
    )


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


def spec(
    plan: Plan,
    job: Job,
    pod: Manifest,
    settings: Settings,
    variables: Manifest,
    python: str,
) -> Manifest:
    """Return the spec of the Job.

    Args:
        plan: The program to run, with its options.
        job: Name and place of the job.
        pod: Its pod, as :func:`~.pod_template.pod_template` returns it.
        settings: Time to live.
        variables: The result of :func:`config_map`.
        python: The interpreter in the image; "" if the framework needs none.
    """
    cluster = plan.spec.cluster
    source: Manifest = {"configMap": {"name": variables["metadata"]["name"]}}
    template = program_template(plan, pod, source, python, KIND.container)
    # By it and its index anybody can tell which replica a pod is.
    template["metadata"]["annotations"][replica_list.ANNOTATION] = replica_list.render(job.replicas)
    template["spec"]["subdomain"] = job.name
    found: Manifest = {
        **job_rules(plan, len(job.replicas), KIND.container),
        "successPolicy": {"rules": [{"succeededIndexes": _deciding(plan, job.replicas)}]},
        "ttlSecondsAfterFinished": (cluster.ttl if cluster.ttl is not None else int(settings.ttl)),
        "template": template,
    }
    if plan.spec.deadline is not None:
        found["activeDeadlineSeconds"] = plan.spec.deadline
    return found


def never(plan: Plan) -> bool:
    """Return whether a failed program is not started again."""
    policy = plan.spec.cluster.restart_policy or RestartPolicy.NEVER
    return policy is RestartPolicy.NEVER


def job_rules(plan: Plan, count: int, container: str) -> Manifest:
    """Return the rules of an Indexed Job; a TrainJob has one for each role.

    Args:
        plan: The program to run, with its options.
        count: Number of its replicas.
        container: Name of the program's container.
    """
    limit = plan.spec.restart_limit
    rules: Manifest = {}
    if plan.spec.elastic:
        # As ExitCode of the operator: a replica that was ended is started again.
        # A lost replica's sidecar may end with any code, so only the program's container counts.
        failed_with = {"operator": "In", "values": list(_PROGRAM_FAILED)}
        codes = {"containerName": container, **failed_with}
        failed = {"action": "FailJob", "onExitCodes": codes}
        rules = {"podFailurePolicy": {"rules": [_LOST, failed]}}
    if plan.spec.retries and never(plan):
        # The cluster starts a pod that it disrupts again, also if nobody follows the job.
        rules = {"podFailurePolicy": {"rules": [_LOST]}}
    return {
        **rules,
        "completions": count,
        "parallelism": count,
        "completionMode": "Indexed",
        # With Never any failure is for good, as with the operator.
        "backoffLimit": 0 if never(plan) else _UNLIMITED if limit is None else limit,
        # Two pods of one index at a time would have the same host name.
        "podReplacementPolicy": "Failed",
    }


def config_map(plan: Plan, job: str, pods: Mapping[str, Manifest]) -> Manifest:
    """Return the ConfigMap with the variables of all replicas; metadata has only its name.

    Args:
        plan: The program to run, with its options.
        job: Name of the job.
        pods: The pod of each role, as :func:`~.pod_template.pod_template` returns it.

    Raises:
        SpecError: They are too large.
    """
    replicas = plan.spec.replicas()
    known = addresses(job, replicas)
    return variables(job, files(plan, replicas, known, commands_apart(plan, replicas, pods)))


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
        index: [word.replace("$$", "$") for word in _command(pods[one.role])]
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


def services(job: Job) -> tuple[Manifest, ...]:
    """Return the headless Service that gives each replica a host name: ``JOB-0.JOB``.

    A single replica needs none.
    """
    if len(job.replicas) == 1:
        return ()
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name},
        "spec": {
            "clusterIP": "None",
            # A replica connects to others before they are ready.
            "publishNotReadyAddresses": True,
            "selector": {JOB.job_label: job.name},
        },
    }
    return (made,)


def addresses(job: str, replicas: Iterable[Replica]) -> dict[Replica, Address]:
    """Return the address of each replica; a single one needs no name."""
    found = tuple(replicas)
    if len(found) == 1:
        return {found[0]: Address("127.0.0.1", PORT)}
    return {one: Address(f"{job}-{index}.{job}", PORT) for index, one in enumerate(found)}


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
    if isinstance(plan.framework, AnyLanguage):
        return shell_start.files(_own(plan, one, known) for one in replicas)
    decider = plan.framework.decider(plan.spec)
    outlives = decider is None or needs_all_workers(plan)
    told = {
        "first": known[decider or next(iter(known))].host if len(known) > 1 else "",
        "patience": _SHORT_PATIENCE if outlives else _PATIENCE,
        "replicas": [_own(plan, one, known) for one in replicas],
        "commands": dict(commands),
    }
    return {_FILE: json.dumps(told)}


def _command(pod: Manifest) -> Sequence[str]:
    command: Sequence[str] = pod["spec"]["containers"][0]["command"]
    return command


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


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise SpecError(
            f"the variables of all replicas have {size / 2**20:,.1f} MiB, and "
            "they come from a ConfigMap, which holds 1 MiB.",
            "Ask for fewer replicas; or use a cluster with the training operator.",
            directive="worker",
        )


def _deciding(plan: Plan, replicas: tuple[Replica, ...]) -> str:
    """Return the indexes whose success is the success of the job: ``1`` or ``1-3``."""
    decider = plan.framework.decider(plan.spec)
    if decider is None:
        roles = endless_roles(plan.framework, plan.spec.serve)
        ends = [replica.role not in roles for replica in replicas]
        return ",".join(str(index) for index, one in enumerate(ends) if one)
    first = last = replicas.index(decider)
    if needs_all_workers(plan) and decider.role == "worker":
        last += plan.spec.count("worker") - 1
    return str(first) if first == last else f"{first}-{last}"


def needs_all_workers(plan: Plan) -> bool:
    """Return whether a job succeeds only with all its workers."""
    return plan.spec.cluster.success_policy is SuccessPolicy.ALL_WORKERS


def program_template(
    plan: Plan, pod: Manifest, source: Manifest, python: str, name: str
) -> Manifest:
    """Return the template of pods whose program gets its variables by the pod's index.

    Args:
        plan: The program to run, with its options.
        pod: The pod, as :func:`~.pod_template.pod_template` returns it.
        source: The volume with the files of :func:`files`, without its name.
        python: The interpreter in the image; "" if the framework needs none.
        name: Name of the container.
    """
    container, *others = pod["spec"]["containers"]
    start: tuple[str, ...] = (python, *_ISOLATED, START)
    if isinstance(plan.framework, AnyLanguage):
        start = shell_start.command(_FOLDER)
    program = {
        "name": name,
        **container,
        "command": [*map(literal, start), *container["command"]],
        "volumeMounts": [
            *container["volumeMounts"],
            {"name": "replicas", "mountPath": _FOLDER, "readOnly": True},
        ],
    }
    notes = {**pod["metadata"]["annotations"], DEFAULT_CONTAINER: name}
    return {
        "metadata": {**pod["metadata"], "annotations": notes},
        "spec": {
            **pod["spec"],
            "containers": [program, *others],
            "volumes": [*pod["spec"]["volumes"], {"name": "replicas", **source}],
            # A policy for failed pods allows no restart in place.
            "restartPolicy": "Never" if never(plan) or plan.spec.elastic else "OnFailure",
        },
    }


def own_words(command: Any) -> Any:
    """Return a container's command without what it does before (:data:`BEFORE`)."""
    return command[4:] if isinstance(command, list) and command[3:4] == [BEFORE] else command


def enter(container: Manifest, command: Sequence[str]) -> tuple[str, ...]:
    """Return a command for a running replica that has the variables of its program.

    Args:
        container: The program's container, from its pod.
        command: The command; unchanged if the container was not made by :func:`program_template`.
    """
    mounts = many(container, "volumeMounts")
    if not any(mount.get("mountPath") == _FOLDER for mount in mounts):
        return tuple(command)
    start = own_words(get(container, "command"))
    if not isinstance(start, list) or not start or tuple(start[1:4]) != _ISOLATED:
        return (*shell_start.command(_FOLDER), *command)
    return (str(start[0]).replace("$$", "$"), *_ISOLATED, _ENTER, *command)
