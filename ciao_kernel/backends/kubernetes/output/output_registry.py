"""Files of ``%output`` through a registry (``by:registry``): what pods get, and checks before.

Each pod pushes an artifact, whose tag has the pod's uid. By its Secret a pod may push; the kernel
reads with the credentials of this machine, or with those of the same Secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ciao_kernel.backends.kubernetes.cluster.build_pods import KubernetesBuildCluster
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.background import in_thread
from ciao_kernel.config import Settings
from ciao_kernel.delivery.output import registry_program
from ciao_kernel.delivery.output.registry_push import MANIFEST, PROGRAM, REGISTRY, TAG
from ciao_kernel.delivery.output.results import MESSAGE_FILE
from ciao_kernel.errors import (
    EnvironmentFault,
    RegistryFault,
    SpecError,
    UsageError,
)
from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directives import outputs
from ciao_kernel.model import Job, JobSpec, Manifest
from ciao_kernel.model.outputs import OUTPUT_WAY, OutputWay
from ciao_kernel.oci import credentials, reference
from ciao_kernel.oci.accounts import DOCKER_KEY, Account, Accounts
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registry import Registry
from ciao_kernel.oci.repository import Repository, scope

_CONFIG = PurePosixPath("/ciao-registry/config.json")
"""File in the container with the passwords of a Secret."""
_BELOW = "ciao-output"
"""Repository of the artifacts, below that of the images."""
_LARGEST_AUTHORITY = 64 << 10
"""Bytes of certificates that fit into a variable of a process."""

_NO_RIGHT = (401, 403)
_MISSING = 404
_NO_PUSH = (_MISSING, 405)
"""Answers to a push where the repository has to exist before, and where nobody can push."""


@dataclass(frozen=True, slots=True)
class Place:
    """The repository that receives the artifacts of a job."""

    repository: Reference
    secret: str
    """Secret by which pods push; "" pushes without a password."""


@dataclass(frozen=True, slots=True)
class Push:
    """The program by which pods of a job push files, its arguments, and the name of its Secret."""

    told: str
    program: str
    secret: str

    @property
    def notes(self) -> dict[str, str]:
        """No annotations: the artifact has the name of its pod."""
        return {}

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the container that pushes."""
        return {REGISTRY: self.told, PROGRAM: self.program}

    @property
    def hidden(self) -> bool:
        """True for a password: the program could read it below /proc of the other container."""
        return bool(self.secret)

    def mounted(self, known: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
        """Return the volume with the password of the Secret, and its mount, if there is one."""
        if not self.secret:
            return [], []
        items = [{"key": DOCKER_KEY, "path": _CONFIG.name}]
        volume = {"name": "push", "secret": {"secretName": self.secret, "items": items}}
        mount = {"name": "push", "mountPath": str(_CONFIG.parent), "readOnly": True}
        return [volume], [mount]


def place(settings: Settings, registry: str | None, secret: str | None) -> Place:
    """Return where artifacts go.

    Args:
        settings: The registry and the Secret of cells that name none.
        registry: That of the cell.
        secret: That of the cell.

    Raises:
        SpecError: No registry is named.
        UsageError: Its name is not valid.
    """
    if not (named := registry or settings.registry):
        raise SpecError(
            "by:registry needs a registry, and none is named.",
            "Write %registry=host/team/cells, or `%ciao config registry=host/team/cells`.",
            directive="output",
        )
    found = reference.parse(named)
    below = replace(found, repository=f"{found.repository}/{_BELOW}", tag="", digest="")
    return Place(below, secret or settings.push_secret)


def push(spec: JobSpec, settings: Settings, *, real: bool) -> Push:
    """Return what the pods of a new job need for pushing; it has no password.

    Args:
        spec: The cell's header.
        settings: Registry, Secret, certificate authority.
        real: False for a dry run, whose objects are shown.

    Raises:
        SpecError: No registry is named.
        EnvironmentFault: The file of its authority cannot be used.
    """
    where = place(settings, spec.build.registry, spec.build.push_secret)
    image = where.repository
    plain = image.registry in settings.plain_registries
    told = {
        "url": f"{'http' if plain else 'https'}://{image.host}",
        "name": image.registry,
        "repository": image.repository,
        "config": str(_CONFIG) if where.secret else "",
        "keys": credentials.keys(image),
        "message": MESSAGE_FILE,
        "authority": "" if plain else _authority(settings),
    }
    program = registry_program.text() if real else "(a program of ciao)"
    return Push(json.dumps(told), program, where.secret)


def _authority(settings: Settings) -> str:
    path = settings.authority_file
    if path is None:
        return ""
    hint = "`%ciao config registryAuthority=FILE` names a file of certificates (PEM)."
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a PEM file"
        raise EnvironmentFault(f"{path} cannot be read: {why}.", hint) from None
    if len(text) > _LARGEST_AUTHORITY:
        raise EnvironmentFault(f"{path} is too large to be given to pods.", hint)
    return text


class Repositories:
    """The repository of a job's artifacts, as the kernel reads it.

    Args:
        where: Where the artifacts are.
        target: Cluster and namespace, which has the Secret.
        settings: Plain registries, certificate authority.
    """

    def __init__(self, where: Place, target: Target, settings: Settings) -> None:
        self.image = where.repository
        self._settings = settings
        self._file = settings.authority_file
        shared = Accounts(settings.plain_registries, self._file, where.secret)
        self._account = Account(shared, KubernetesBuildCluster(target, settings))

    async def with_right(self, actions: str) -> Repository:
        """Return the repository for some actions, such as ``pull``.

        Raises:
            RegistryFault: The credentials of this machine cannot be read.
            SpecError, ClusterFault: Those of the Secret cannot.
        """
        await self._account.ensure_credentials(self.image)
        registry = await in_thread(lambda: self._account.registries.of(self.image))
        return Repository(registry, self.image, (scope(self.image.repository, actions),))

    def anonymous(self) -> Repository:
        """Return the repository as pods without a Secret use it."""
        plain = self.image.registry in self._settings.plain_registries
        registry = Registry(
            self.image.host, plain=plain, authority=self._file, name=self.image.registry
        )
        scopes = (scope(self.image.repository, "pull,push"),)
        return Repository(registry, self.image, scopes)


async def check(spec: JobSpec, target: Target, settings: Settings) -> None:
    """Check before a job exists what can be checked from here.

    Raises:
        SpecError: No registry is named, pods would need a password, or the repository takes no
            push: some registries need it before.
        EnvironmentFault: The file of its authority cannot be used.
        BackendError: The registry refuses, or does not answer.
    """
    await asyncio.to_thread(push, spec, settings, real=False)
    where = place(settings, spec.build.registry, spec.build.push_secret)
    opened = Repositories(where, target, settings)
    if where.secret:
        repository = await opened.with_right("pull")
        await in_thread(lambda: repository.has_manifest(f"{TAG}none", MANIFEST))
        await _try_push(where, await opened.with_right("pull,push"))
        return
    unnamed = opened.anonymous()
    try:
        await _try_push(where, unnamed)
    finally:
        unnamed.registry.close()


async def _try_push(where: Place, repository: Repository) -> None:
    """Begin a push and cancel it.

    Raises:
        SpecError: Pods would need a password, or the repository takes no push.
        RegistryFault: The registry refuses for another reason, or does not answer.
    """
    try:
        await in_thread(lambda: repository.cancel(repository.begin()))
    except RegistryFault as fault:
        if fault.code in _NO_RIGHT and where.secret:
            return  # perhaps this machine's login may only read, and the Secret has another one
        if fault.code in _NO_RIGHT:
            raise SpecError(
                f"pods may not push to {where.repository.name} without a password (HTTP "
                f"{fault.code}).",
                "Name a Secret of the namespace that has one: %pushSecret=NAME. Yours stays on "
                "this machine.",
                directive="output",
            ) from None
        if fault.code not in _NO_PUSH:
            raise
        hint = f"Create the repository {where.repository.name}, or name another registry"
        raise SpecError(
            fault.message,
            f"{hint}: %registry=…." if fault.code == _MISSING else fault.hint,
            directive="output",
        ) from None


def of_job(job: Job, target: Target, settings: Settings) -> Repositories:
    """Return the repository of a job that exists, by its header and the settings.

    Raises:
        SpecError, UsageError: The registry is not known here.
    """
    registry, secret = (stored_header.text(job.header, name) for name in ("registry", "pushSecret"))
    return Repositories(place(settings, registry, secret), target, settings)


def still_there(job: Job, settings: Settings) -> str:
    """Say where the files of a pod that is gone may still be; "" if they did not go to a registry.

    Nobody here knows the uid of such a pod, which the tag has.
    """
    if f"{OUTPUT_WAY}{OutputWay.REGISTRY}" not in outputs.words_in(job.header):
        return ""
    with contextlib.suppress(SpecError, UsageError):  # the registry is not known here
        where = place(settings, stored_header.text(job.header, "registry"), None)
        return (
            f"If they were not fetched, they are still in {where.repository.name}: each pod has "
            f"pushed its own with the tag {TAG}UID, by its uid."
        )
    return ""
