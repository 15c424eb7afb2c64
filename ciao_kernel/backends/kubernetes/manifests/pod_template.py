"""The pods of a job: pure functions that return a template for each role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.manifests import volumes
from ciao_kernel.backends.kubernetes.object_fields import literal
from ciao_kernel.backends.kubernetes.output import output_sidecar
from ciao_kernel.backends.kubernetes.output.delivery import Delivery
from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints, event_files, root_links, site_folder, volume_variables
from ciao_kernel.delivery.output import results
from ciao_kernel.errors import SpecError
from ciao_kernel.kube.tolerations import toleration
from ciao_kernel.model import Artifact, ClusterSpec, Job, Manifest, Replica, ReplicaGroup
from ciao_kernel.model.environment import ALWAYS, UNLESS_SET
from ciao_kernel.plugins import AnyLanguage, Launching, Plan, replica_command
from ciao_kernel.visible_text import short

ARCHITECTURE = "kubernetes.io/arch"
"""Label of each node with its architecture in Go's notation (Kubernetes, "Well-Known Labels")."""
_BASES = frozenset({"base", "dockerfile", "s2i_builder"})
"""Fields of BuildSpec that name what an image is built on."""
_SIDECAR = "sidecar.istio.io/inject"
_LINKERD = {"linkerd.io/inject": "disabled"}


def pod_template(
    plan: Plan,
    job: Job,
    artifact: Artifact,
    group: ReplicaGroup,
    settings: Settings,
    identity: Sequence[Manifest],
    *,
    cpu: str,
    sleeps: bool,
    delivery: Delivery,
) -> Manifest:
    """Return the pod of a role; its container has no name yet.

    Args:
        plan: The program to run, with its options.
        job: Name and place of the job.
        artifact: Result of the builder.
        group: The role.
        settings: Default image, grace periods.
        identity: Variables by which a replica knows which one it is.
        cpu: CPU request of a role without ``%cpu``; "" means no request.
        sleeps: Whether the cluster supports ``preStop.sleep`` (Kubernetes 1.30).
        delivery: The way of its files, see :meth:`.Delivery.of_template`.
    """
    cluster, seen = plan.spec.cluster, plan.spec.seen_by(group.role)
    mounted = (
        *seen.volumes,
        *checkpoints.on_cluster(plan.spec, settings, job.name),
    )
    grace = settings.grace(plan.spec.grace)
    image = artifact.image or image_of(plan, settings)
    most = output_sidecar.limit(settings, delivery.way)
    container: Manifest = {
        "image": image,
        "command": [literal(word) for word in _command(plan, artifact, group.role)],
        "workingDir": artifact.workdir,
        "env": [
            *identity,
            *_env(plan, job, artifact, group.role),
            *_of_values(artifact, delivery.values, most),
        ],
        "resources": _resources(plan, group.role, cpu),
        "volumeMounts": [
            *artifact.mounts,
            {"name": "shm", "mountPath": "/dev/shm"},
            *volumes.mounts(mounted, artifact.workdir),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if cluster.env_secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in cluster.env_secrets]
    if plan.spec.warm is not None:
        container["stdin"] = True  # the agent of a warm replica reads its commands there
    if sleeps and settings.linger >= 1:
        # When worker-0 has ended, the job is over and the operator deletes the running pods.
        # They get a moment to end by themselves and to write their last lines.
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": int(settings.linger)}}}
    spec: Manifest = {
        "containers": [container],
        "volumes": [
            *artifact.volumes,
            # PyTorch's data loaders share tensors there; the default size is 64 MiB.
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            *volumes.sources(mounted),
        ],
        "terminationGracePeriodSeconds": max(1, round(settings.linger + grace)),
        "enableServiceLinks": False,
        # Otherwise the program is process 1, which SIGTERM does not end without a handler: each
        # stop, and each end of a PS, would take the whole grace period.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": cluster.service_account is not None,
    }
    if plan.spec.deadline is not None:
        # The operator checks its deadline only when something else changes; the kubelet at once.
        spec["activeDeadlineSeconds"] = plan.spec.deadline
    if artifact.init_containers:
        # A quota that requires limits requires them for every container.
        asked = {"image": image, "resources": container["resources"]}
        spec["initContainers"] = [{**asked, **one} for one in artifact.init_containers]
    if plan.spec.kept_paths or delivery.values:
        spec = output_sidecar.add(spec, seen, artifact, settings, delivery)
    spec = volumes.one_for_each_claim(spec)
    spec |= _placement(cluster, artifact.architecture)
    labels, notes = dict(cluster.labels), dict(cluster.annotations)
    # With a sidecar the pod never ends, unless the user knows better (a native sidecar ends with
    # the pod). Old versions of Istio read the annotation only, new ones prefer the label.
    # Linkerd reads an annotation.
    sidecar = {_SIDECAR: labels.get(_SIDECAR) or notes.get(_SIDECAR) or "false"}
    return {
        "metadata": {
            "labels": {**sidecar, **labels, **job_metadata.labels(job.name)},
            "annotations": {
                **sidecar,
                **_LINKERD,
                **notes,
                **(delivery.upload.notes if delivery.upload else {}),
            },
        },
        "spec": spec,
    }


def image_of(plan: Plan, settings: Settings) -> str:
    """Return the image of a job's replicas: from the cell, the settings or the framework.

    Returns "" if there is none, but a builder makes one without it.

    Raises:
        SpecError: There is none.
    """
    named: Mapping[str, str] = settings.images
    name = plan.framework.name
    found = plan.spec.cluster.image or named.get(name) or plan.framework.image
    if not found and not plan.spec.build.wishes & _BASES:
        if isinstance(plan.framework, AnyLanguage):
            program = plan.framework.executable(plan.spec)
            raise SpecError(
                f"a job of {name} on a cluster needs an image that has its program.",
                f"Add %image=… with {short(program)} and sh, or set it for all jobs: "
                f"`%ciao config images.{name}=…`.",
                directive="framework",
            )
        if isinstance(plan.framework, Launching):
            needs = ", ".join(("Python", *plan.framework.programs, plan.framework.package))
            raise SpecError(
                f"a job of {name} on a cluster needs an image with {needs}.",
                f"Add %image=…, or set it for all jobs: `%ciao config images.{name}=…`.",
                directive="framework",
            )
        raise SpecError(
            f"a job of {name} on a cluster needs an image, and no default is known.",
            f"Add %image=… with Python and {plan.framework.requirement}, or set it for all jobs: "
            f"`%ciao config images.{name}=…`. %packages can add {plan.framework.requirement} to "
            "an image such as python:3.13.",
            directive="framework",
        )
    return found


def _placement(cluster: ClusterSpec, made_for: str) -> Manifest:
    """Return what selects the nodes; ``made_for`` is the only architecture that can run a pod."""
    found: Manifest = {}
    if cluster.service_account:
        found["serviceAccountName"] = cluster.service_account
    if cluster.pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in cluster.pull_secrets]
    made = {ARCHITECTURE: made_for} if made_for else {}
    if selected := {**made, **dict(cluster.node_selector)}:
        found["nodeSelector"] = selected
    if cluster.tolerations:
        found["tolerations"] = [toleration(text) for text in cluster.tolerations]
    if cluster.priority_class:
        found["priorityClassName"] = cluster.priority_class
    return found


def _command(plan: Plan, artifact: Artifact, role: str) -> tuple[str, ...]:
    """Return the framework's command; Python finds the folder with ciao's own modules first."""
    command = replica_command(plan.framework, plan.spec, artifact, role)
    before = ""
    if not isinstance(plan.framework, AnyLanguage):
        seen = plan.spec.seen_by(role)
        before = root_links.make(root_links.links(seen, artifact.workdir, artifact.source))
    start = (artifact.python, "-I", "-S", "-c")
    if site_folder.starts(artifact.source):
        place = site_folder.path(artifact.workdir)
        return (*start, before + site_folder.BECOME, place, *command)
    return (*start, before + root_links.EXECUTE, *command) if before else command


def _env(plan: Plan, job: Job, artifact: Artifact, role: str) -> list[Manifest]:
    """Return the variables that all replicas of a role have."""
    own = {"CIAO_JOB": job.name, **ALWAYS, **UNLESS_SET, **dict(artifact.env)}
    own |= checkpoints.variables(plan.spec, artifact.workdir)
    seen = plan.spec.seen_by(role)
    own |= volume_variables.variables(seen, artifact.workdir, artifact.source)
    if isinstance(plan.framework, AnyLanguage):
        own["CIAO_CELL"] = artifact.program
    own |= results.output_folder(plan.spec, artifact.workdir)
    own |= event_files.variables(plan.spec, artifact.workdir)
    if site_folder.starts(artifact.source):
        own[site_folder.VARIABLE] = site_folder.path(artifact.workdir)
    told = dict(plan.spec.env)
    if (path := dict(artifact.env).get("PYTHONPATH")) and "PYTHONPATH" in told:
        # The builder's packages are there; otherwise they could not be imported.
        told["PYTHONPATH"] = f"{path}:{told['PYTHONPATH']}"
    own |= told | results.variables(plan.spec, artifact, results.MESSAGE_FILE)
    return [{"name": name, "value": literal(value)} for name, value in own.items()]


def _of_values(artifact: Artifact, values: Replica | None, most: int) -> list[Manifest]:
    """Return the variables of the role whose large values come as files."""
    if values is None:
        return []
    own = results.file_variables(artifact.workdir, most, values)
    return [{"name": name, "value": literal(value)} for name, value in own.items()]


def _resources(plan: Plan, role: str, cpu: str) -> Manifest:
    asked = plan.spec.asks(role)
    found: dict[str, str] = {}
    if asked.cpu:
        found["cpu"] = asked.cpu
    if asked.memory:
        found["memory"] = asked.memory
    if asked.gpu and asked.gpu.count:
        found[asked.gpu.resource] = str(asked.gpu.count)
    # Equal values: a replica that uses more than it requested is evicted first. But the default
    # for CPUs is only a request: the user has asked for no limit.
    requests = {"cpu": cpu, **found} if cpu else found
    limits = {"limits": dict(found)} if found else {}
    return {"requests": requests, **limits} if requests else {}
