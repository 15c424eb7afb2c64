"""Builds images with kaniko's executor in a pod, for all builders that must run commands.

An image is built once: its tag is the digest of all its inputs.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ciao_kernel.builders import build_errors, packed_context
from ciao_kernel.builders.build_stages import BuildStages
from ciao_kernel.builders.dockerfile import bases
from ciao_kernel.builders.dockerfile_rewrite import added_line, copying_from, with_cache_key
from ciao_kernel.builders.images import DOCKER_KEY, ImageBuild, SharedBuildState
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, SourceError, SpecError
from ciao_kernel.kube.tolerations import toleration
from ciao_kernel.model import Event, Manifest, Notice, Unit
from ciao_kernel.oci import reference
from ciao_kernel.oci.layer import File, Layer
from ciao_kernel.oci.reference import Reference, is_digest
from ciao_kernel.plugins import Build

_VERSION = 4
"""Version of the build procedure: a change of it changes all tags."""
_CORRECTIONS = (
    # Else `.dockerignore` also counts for COPY --from: files that it names would not be part of the
    # key of a cached layer, and an old layer would be taken.
    "SCOPED_DOCKERIGNORE",
    # Else the key of COPY, ADD and WORKDIR has the names of variables, but not their values.
    "RESOLVE_CACHE_KEY",
    # Else two folders may have the same key: names and contents of files are joined without a mark.
    "HASH_DIR_FRAMING",
    # Else a later COPY --from copies the mark of a removed file out of a cached layer, and removes
    # that file from the image.
    "SKIP_WRITE_WHITEOUTS",
    # Else RUN has the main group of the user, not the one of USER user:group.
    "RUN_HONOR_GROUP",
)
"""What the executor does as Docker does only if a variable says so; older ones ignore them."""
_CONTEXT_PATH = "/kaniko/ciao"
"""Folder of the context in the pod: the executor never puts its own folder into an image."""
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""Capabilities needed to unpack an image and run its commands; each one was tested."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Inputs of an image.

    Args:
        dockerfile: Text of the Dockerfile; bases are named by digest.
        files: The context, without the Dockerfile.
        name: File name of the Dockerfile, for messages; "" if the user has none.
        why: Reason for the build, for the end of a sentence.
    """

    dockerfile: str
    files: tuple[File, ...] = ()
    name: str = ""
    why: str = "the job's environment"


class Executor:
    """Builds images in pods.

    Args:
        shared_state: Open registries, which the cells of one builder share.
    """

    def __init__(self, shared_state: SharedBuildState) -> None:
        self._shared_state, self._settings = shared_state, shared_state.settings

    async def image(self, work: ImageBuild, recipe: Recipe) -> Reference | None:
        """Return the image of a recipe and build it if needed; None if a dry run does not find it.

        Raises:
            SourceError: The build failed because of its inputs.
            RegistryFault: A request to a registry fails.
            ClusterFault: The cluster refuses or ends the pod of the build.
        """
        ask, target = work.ask, work.target
        files_digest = await work.thread(lambda: packed_context.digest(recipe.files, work.check))
        secret = ask.spec.build.pip_secret or self._settings.pip_secret
        if secret and ask.build_cluster:  # the Secret of another namespace may be for another index
            secret = f"{ask.build_cluster.namespace}/{secret}"
        recipe = replace(recipe, dockerfile=with_cache_key(recipe.dockerfile, secret))
        parts = json.dumps([_VERSION, recipe.dockerfile, files_digest, ask.architecture])
        tag = f"ciao-env-{hashlib.sha256(parts.encode()).hexdigest()[:32]}"
        if found := await work.thread(lambda: work.appender.find(target, tag)):
            return found
        if ask.dry:
            if added_line(recipe.dockerfile, ask.architecture):
                await self._context(work, recipe, 0)  # sends nothing, but may refuse it
            return None
        if ask.build_cluster is None:
            raise SpecError(
                "this backend has no place to build an image.",
                "%builder=append does not need one.",
                directive="builder",
            )
        authority = self._authority()
        dockerfile, layer = await self._context(work, recipe, len(authority or b""))
        if files_digest != await work.thread(
            lambda: packed_context.digest(recipe.files, work.check)
        ):
            raise SourceError("files changed while they were packed.", "Try again.")
        work.say(f"building {target.name}:{tag} for {recipe.why} …")
        name = f"ciao-build-{tag[9:19]}-{secrets.token_hex(3)}"
        build_pod = pod(
            name, f"{target.name}:{tag}", ask, self._settings, self._hosts(work, dockerfile)
        )
        config_map = packed_context.config_map(name, layer, authority)
        stages = BuildStages(dockerfile)

        def show(event: Event) -> None:
            shown = without_log_prefix(event)
            # Lines that have no prefix of the builder are those of a command.
            if isinstance(shown, Notice) and shown != event and stages.read(shown.text):
                step.at(stages.done, stages.total, Unit.STEPS)
            work.emit(shown)

        with work.step("building the image") as step:
            result = await ask.build_cluster.run(build_pod, [config_map], show)
            if result.code != 0:
                raise build_errors.fault(
                    result,
                    recipe.dockerfile,
                    recipe.name,
                    target,
                    ask.build_cluster.namespace,
                    ask.spec.build.push_secret or self._settings.push_secret,
                )
            step.at(stages.total, stages.total, Unit.STEPS)
        digest = result.message.strip()
        if is_digest(digest):
            return target.at(digest)
        if found := await work.thread(lambda: work.appender.find(target, tag)):
            return found
        raise build_errors.lost(target, tag)

    async def _context(
        self, work: ImageBuild, recipe: Recipe, other_bytes: int
    ) -> tuple[str, Layer]:
        """Return the Dockerfile for the pod, and the packed context with it.

        Args:
            work: Work of the cell.
            recipe: Inputs of the image.
            other_bytes: Bytes in the ConfigMap beside the context.

        Raises:
            SourceError: A large context has an ADD, and nothing was sent.
        """
        folder, target = work.ask.folder, work.target

        async def packed(*files: File) -> Layer:
            return await work.thread(lambda: packed_context.pack_context(files, folder, work.check))

        text = recipe.dockerfile
        with work.step("packing the build's files"):
            with_files = await packed(*recipe.files, File("Dockerfile", text.encode()))
        if not recipe.files or with_files.size + other_bytes <= packed_context.LIMIT:
            return text, with_files
        if line := added_line(text, work.ask.architecture):
            raise SourceError(
                f"{recipe.name}, line {line}: ADD is not supported for a context of this size "
                f"({with_files.size / 1e6:,.0f} MB).",
                "Write COPY, and unpack archives by RUN.",
            )
        work.say(f"sending {with_files.size / 1e6:,.0f} MB of files through {target.registry} …")
        pushed = await work.push_context(await packed(*packed_context.in_image(recipe.files)))
        text = copying_from(text, str(pushed.image))
        return text, await packed(File("Dockerfile", text.encode()))

    def _authority(self) -> bytes | None:
        """Return the certificate authority of private registries, or None if none is set."""
        path = self._shared_state.authority
        try:
            return path.read_bytes() if path else None
        except OSError as error:
            raise EnvironmentFault(
                f"{path} cannot be read: {error.strerror}.",
                "`%ciao config registryAuthority=…` names the file.",
            ) from None

    def _hosts(self, work: ImageBuild, text: str) -> tuple[str, ...]:
        """Return the registries that a private authority may have signed: all that use https."""
        if self._shared_state.authority is None:
            return ()
        named = [reference.parse(image).registry for image in bases(text).values()]
        plain = self._settings.plain_registries
        return tuple(sorted({work.target.registry, *named} - set(plain)))


def pod(
    name: str, destination: str, ask: Build, settings: Settings, hosts: Sequence[str] = ()
) -> Manifest:
    """Return the pod that builds an image.

    Args:
        name: Name of the pod, and of the ConfigMap with its context.
        destination: Repository and tag.
        ask: Build request of the cell.
        settings: The executor's image, its resources, registries with plain http.
        hosts: Registries whose certificate is signed by the authority in the ConfigMap.
    """
    cluster = ask.spec.cluster
    repository = destination.rpartition(":")[0]
    volumes, mounts = _volumes(name, ask, settings)
    container: Manifest = {
        "name": "kaniko",
        "image": settings.kaniko_image,
        "args": [
            f"--context=tar://{_CONTEXT_PATH}/{packed_context.KEY}",
            f"--destination={destination}",
            "--digest-file=/dev/termination-log",
            "--log-format=text",
            "--compressed-caching=false",  # else a layer of 600 MB takes 4 GB of memory
            "--push-retry=3",
            "--image-download-retry=3",
            "--image-fs-extract-retry=3",
            "--cache=true",
            "--cache-copy-layers",
            f"--cache-repo={repository}/cache",
            *(f"--insecure-registry={host}" for host in settings.plain_registries),
            *(f"--registry-certificate={host}={_CONTEXT_PATH}/ca.crt" for host in hosts),
        ],
        "env": [{"name": f"FF_KANIKO_{name}", "value": "true"} for name in _CORRECTIONS],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "seccompProfile": {"type": "RuntimeDefault"},
            "capabilities": {"drop": ["ALL"], "add": list(_CAPABILITIES)},
        },
        "volumeMounts": mounts,
    }
    resources = {"cpu": settings.build_cpu, "memory": settings.build_memory}
    if limits := {key: value for key, value in resources.items() if value}:
        container["resources"] = {"requests": limits, "limits": dict(limits)}
    spec: Manifest = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "activeDeadlineSeconds": int(settings.build_deadline),
        "nodeSelector": {"kubernetes.io/arch": ask.architecture},
        "containers": [container],
        "volumes": volumes,
    }
    if cluster.pull_secrets:
        spec["imagePullSecrets"] = [{"name": one} for one in cluster.pull_secrets]
    if cluster.tolerations:  # nodes of a rarer architecture usually have a taint
        spec["tolerations"] = [toleration(text) for text in cluster.tolerations]
    # With a sidecar the pod never ends.
    istio = {"sidecar.istio.io/inject": "false"}
    annotations = {**istio, "linkerd.io/inject": "disabled"}
    metadata: Manifest = {"name": name, "labels": istio, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _volumes(name: str, ask: Build, settings: Settings) -> tuple[list[Manifest], list[Manifest]]:
    """Return the volumes of the pod, the context and the Secrets, and how they are mounted."""
    wanted = ask.spec.build
    volumes: list[Manifest] = [{"name": "context", "configMap": {"name": name}}]
    mounts: list[Manifest] = [{"name": "context", "mountPath": _CONTEXT_PATH, "readOnly": True}]
    if push_secret := wanted.push_secret or settings.push_secret:
        # The file must have docker's name: the executor ignores the name of the key.
        items = [{"key": DOCKER_KEY, "path": "config.json"}]
        secret = {"secretName": push_secret, "items": items}
        volumes.append({"name": "push", "secret": secret})
        mounts.append({"name": "push", "mountPath": "/kaniko/.docker", "readOnly": True})
    if pip_secret := wanted.pip_secret or settings.pip_secret:
        # Readable for all: pip skips an unreadable file, and would use the public index.
        # The key is named, so that a Secret without it is an error; else a folder is mounted.
        items = [{"key": "pip.conf", "path": "pip.conf"}]
        readable = {"secretName": pip_secret, "defaultMode": 0o444, "items": items}
        volumes.append({"name": "pip", "secret": readable})
        mount = {"mountPath": "/etc/pip.conf", "subPath": "pip.conf"}
        mounts.append({"name": "pip", "readOnly": True, **mount})
    return volumes, mounts


def without_log_prefix(event: Event) -> Event:
    """Reduce a line of the executor's log to its message."""
    if not isinstance(event, Notice):
        return event
    mark = "[build] " if event.text.startswith("[build] ") else ""
    return Notice(mark + build_errors.plain(event.text.removeprefix(mark)))


def files(texts: Mapping[str, str]) -> tuple[File, ...]:
    """Return texts as files of a context."""
    return tuple(File(path, text.encode()) for path, text in sorted(texts.items()))
