"""What a TrainJob changes in a runtime that it does not own: pure functions.

A TrainJob names image, command, variables, resources and number of its pods itself
(``spec.trainer``). Labels, volumes and what selects nodes are overrides, whose field depends on the
version of Trainer: ``runtimePatches`` since 2.2, ``podTemplateOverrides`` in 2.1. Trainer 2.0
cannot label pods, so jobs there use no runtime of others. Facts: the CRD of TrainJobs of each
release, and pkg/runtime/framework/plugins/jobset of Trainer.
"""

from __future__ import annotations

import copy
import shlex
from dataclasses import dataclass

from ciao_kernel.backends.kubernetes.apis import TRAINER
from ciao_kernel.backends.kubernetes.apis.trainer import CONTAINER, OVERRIDES, PATCHES, SHARED, STEP
from ciao_kernel.backends.kubernetes.manifests import indexed_start
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Manifest

MANAGER = "ciao-kernel/job"
"""Names ciao's patch among those of other managers, such as Kueue."""
_GRACE = "terminationGracePeriodSeconds"
_POD_FIELDS = (
    "serviceAccountName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "imagePullSecrets",
    "schedulingGates",
)
_MOST = 128
"""Items of a list in a TrainJob."""
_INIT_FIELDS = {"name", "image", "command", "volumeMounts", "resources", "securityContext"}


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields by which a TrainJob of a cluster changes its runtime."""

    patches: bool = True
    """``runtimePatches``; otherwise ``podTemplateOverrides``, which have no security context."""
    deadline: bool = True
    """``activeDeadlineSeconds`` of the TrainJob."""
    grace: bool = True
    """``terminationGracePeriodSeconds`` of a patch, since 2.3."""


def probe(runtime: str, namespace: str) -> Manifest:
    """Return a TrainJob for a dry run, which has all the fields that some version knows.

    Args:
        runtime: Name of the ClusterTrainingRuntime.
        namespace: Namespace of the job.
    """
    note = {"metadata": {"annotations": {MANAGER: "probe"}}}
    patch = {**note, "spec": {_GRACE: 1}}
    return {
        "apiVersion": f"{TRAINER.group}/{TRAINER.version}",
        "kind": "TrainJob",
        "metadata": {"name": f"{runtime}-probe", "namespace": namespace},
        "spec": {
            "runtimeRef": _reference(runtime),
            "activeDeadlineSeconds": 1,
            PATCHES: [_patch(patch)],
            OVERRIDES: [{"targetJobs": [{"name": STEP}], **note}],
        },
    }


def known(answer: Manifest) -> Fields | None:
    """Return the fields that a server has kept of a probe; None if they do not suffice."""
    deadline = get(answer, "spec", "activeDeadlineSeconds") is not None
    for patch in many(answer, "spec", PATCHES):
        (job, *_) = [
            *many(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs"),
            {},
        ]
        pod = get(job, "template", "spec", "template")
        if get(pod, "metadata", "annotations", MANAGER):
            return Fields(True, deadline, get(pod, "spec", _GRACE) is not None)
    for override in many(answer, "spec", OVERRIDES):
        if get(override, "metadata", "annotations", MANAGER):
            return Fields(False, deadline, grace=False)
    return None


def spec(template: Manifest, base: Manifest, runtime: str, count: int, fields: Fields) -> Manifest:
    """Return the spec of a TrainJob whose pods become those of a template.

    Args:
        template: The template that a runtime of the job's own would have.
        base: The template of the runtime.
        runtime: Its name.
        count: Number of pods.
        fields: What the cluster's TrainJobs have.

    Raises:
        SpecError: The template differs from the base in a field that cannot be changed.
    """
    pod, given = copy.deepcopy(template["spec"]), base["spec"]
    deadline, grace = pod.pop("activeDeadlineSeconds", None), pod.pop(_GRACE)
    (container, *others), (known_container, *_) = pod.pop("containers"), given["containers"]
    init = pod.pop("initContainers", [])
    mounts = list(container.pop("volumeMounts"))
    mounts += [one for first in init for one in first["volumeMounts"] if one not in mounts]
    volumes, mounts, shared = _apart(pod.pop("volumes"), mounts, base)
    trainer = {
        "numNodes": count,
        "image": container.pop("image"),
        "command": _command(container.pop("command"), init),
        "env": container.pop("env"),
        "resourcesPerNode": container.pop("resources", {}),
    }
    mine: Manifest = {"name": CONTAINER, "volumeMounts": mounts}
    found: Manifest = {"volumes": volumes, "containers": [mine]}
    found |= {name: pod.pop(name) for name in _POD_FIELDS if name in pod}
    if fields.patches:
        for place, source in ((mine, container), (found, pod)):
            if "securityContext" in source:
                place["securityContext"] = source.pop("securityContext")
    if fields.grace and grace != given[_GRACE]:
        found[_GRACE] = grace
    wrong = [f"the volume {name}" for name in shared]
    wrong += [f"the container {one.get('name')}" for one in others]
    wrong += [f"the container {one['name']}" for one in init if not _is_prefix(one, template)]
    # The runtime's own pause before SIGTERM is as good.
    wrong += _differing(container, known_container, {"image", "volumeMounts", "lifecycle"})
    wrong += _differing(pod, given, {"containers", "volumes", _GRACE})
    wrong += ["activeDeadlineSeconds"] if deadline and not fields.deadline else []
    # A longer time than asked for does no harm.
    wrong += [_GRACE] if grace > given[_GRACE] and not fields.grace else []
    lists = {"words of the command": trainer["command"], "variables": trainer["env"]}
    wrong += [f"more than {_MOST} {what}" for what, own in lists.items() if len(own) > _MOST]
    if wrong:
        raise SpecError(
            f"a TrainJob cannot set {', '.join(wrong)} of the ClusterTrainingRuntime {runtime}.",
            "Write %api=job: an Indexed Job can. Or ask for the right to create TrainingRuntimes.",
            directive="framework",
        )
    changes = {"metadata": template["metadata"], "spec": found}
    overrides: Manifest = {OVERRIDES: [{"targetJobs": [{"name": STEP}], **changes}]}
    return {
        "runtimeRef": _reference(runtime),
        "trainer": {name: value for name, value in trainer.items() if value},
        **({PATCHES: [_patch(changes)]} if fields.patches else overrides),
        **({"activeDeadlineSeconds": deadline} if deadline else {}),
    }


def _reference(runtime: str) -> Manifest:
    return {"apiGroup": TRAINER.group, "kind": SHARED, "name": runtime}


def _patch(pod: Manifest) -> Manifest:
    job = {"name": STEP, "template": {"spec": {"template": pod}}}
    template = {"spec": {"replicatedJobs": [job]}}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": template}}


def _apart(
    volumes: list[Manifest], mounts: list[Manifest], base: Manifest
) -> tuple[list[Manifest], list[Manifest], list[str]]:
    """Return volumes and mounts without the runtime's own, each volume mounted once.

    The mounts of an override are keyed by the names of their volumes. So a volume with several
    mounts becomes several volumes; those of which that would be another are returned by name.
    """
    spec = base["spec"]
    given = many(spec["containers"][0], "volumeMounts")
    left = {one["name"]: one for one in volumes if one not in spec["volumes"]}
    made, placed, shared = dict(left), [], []
    used = set()
    for mount in mounts:
        if mount in given:
            continue
        name = mount["name"]
        if name in used:
            volume = left.get(name, {})
            # A kubelet waits without an end for a second volume with one claim.
            if not {"configMap", "secret", "nfs"} & volume.keys():
                shared.append(name)
                continue
            number = next(n for n in range(2, len(mounts) + 2) if f"{name}-{n}" not in made)
            name = f"{name}-{number}"
            made[name] = {**volume, "name": name}
        used.add(name)
        placed.append({**mount, "name": name})
    return list(made.values()), placed, shared


def _command(command: list[str], init: list[Manifest]) -> list[str]:
    """Return a command that first does what the init containers would do."""
    if not init:
        return command
    first = " && ".join(shlex.join(one["command"]) for one in init)
    return ["sh", "-c", f'{first} && exec "$@"', indexed_start.BEFORE, *command]


def _is_prefix(init: Manifest, template: Manifest) -> bool:
    image = template["spec"]["containers"][0]["image"]
    return init.keys() <= _INIT_FIELDS and init.get("image") == image


def _differing(mine: Manifest, given: Manifest, but: set[str]) -> list[str]:
    names = (mine.keys() | given.keys()) - but
    return sorted(name for name in names if mine.get(name) != given.get(name))
