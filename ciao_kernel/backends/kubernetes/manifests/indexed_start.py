"""How a pod becomes a replica: it takes the variables of its index, then starts the program.

Pods of an Indexed Job or of a TrainJob's role have one template, so a short program in front of the
framework's command reads them from a ConfigMap (:mod:`.replica_variables`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ciao_kernel.backends.kubernetes.manifests import shell_start
from ciao_kernel.backends.kubernetes.manifests.indexed_rules import never
from ciao_kernel.backends.kubernetes.object_fields import get, literal, many, of_literal
from ciao_kernel.delivery.name_wait import WAIT_FOR_NAME
from ciao_kernel.model import Manifest
from ciao_kernel.plugins import DEFAULT_CONTAINER, AnyLanguage, Plan

_FOLDER, FILE = "/ciao-replicas", "replicas.json"
_TAKE_VARIABLES = f"""\
import json, os, socket, sys, time
index = int(os.environ["JOB_COMPLETION_INDEX"])
with open("{_FOLDER}/{FILE}") as file:
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
{_TAKE_VARIABLES}
{WAIT_FOR_NAME}
command = told["commands"].get(str(index)) or sys.argv[1:]
if told["first"]:
    wait_for_name(told["first"], told["patience"])
os.execvp(command[0], command)
"""
"""Runs in the replica before the framework's command. The Job controller sets the index.

Programs that connect to the first replica at once would fail before its name exists, also in that
replica itself."""

BEFORE = "before"
"""Fourth word of a command that does something before the rest of it, which is the program's."""
_ISOLATED = ("-I", "-S", "-c")
"""Options of Python. Neither packages nor variables of the program can affect those few lines."""


def program_template(
    plan: Plan, pod: Manifest, source: Manifest, python: str, name: str
) -> Manifest:
    """Return the template of pods whose program gets its variables by the pod's index.

    Args:
        plan: The program to run, with its options.
        pod: The pod, as :func:`~.pod_template.pod_template` returns it.
        source: The volume with the files of :func:`.replica_variables.files`, without its name.
        python: The interpreter in the image; "" if the framework needs none.
        name: Name of the container.
    """
    container, *others = pod["spec"]["containers"]
    start: tuple[str, ...] = (python, *_ISOLATED, START)
    if isinstance(plan.framework, AnyLanguage):
        start = shell_start.start(_FOLDER)
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
    return (of_literal(str(start[0])), *_ISOLATED, _ENTER, *command)
