"""Reads an artifact with files, which a pod has pushed (``by:registry``): foreign input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ciao_kernel.delivery.output.registry_push import ARTIFACT, LISTING, MANIFEST, POD, TITLE
from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.reference import digest_of, is_digest
from ciao_kernel.oci.registry_errors import parsed
from ciao_kernel.oci.repository import Repository


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A layer of an artifact."""

    path: str
    """As the pod names it: it may be anything."""
    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact."""

    digest: str
    """Digest of the manifest."""
    pod: str
    """Uid of the pod that says to have pushed it."""
    files: tuple[ArtifactFile, ...]
    listing: dict[str, Any]
    """What is said about the files, unchecked."""


def read(repository: Repository, version: str) -> Artifact | None:
    """Return the artifact with a tag or a digest; None if there is none.

    Args:
        repository: Its repository.
        version: Its tag, or its digest.

    Raises:
        RegistryFault: The registry refuses, or it is no artifact of ciao.
    """
    name = f"{repository.reference.name}{'@' if is_digest(version) else ':'}{version}"
    try:
        raw = repository.manifest(version, MANIFEST, name).body
    except RegistryFault as fault:
        if fault.code == 404:
            return None
        raise
    digest = digest_of(raw)
    if is_digest(version) and version != digest:
        raise RegistryFault(f"{name} is damaged.", "Ask the registry's administrator.")
    try:
        body = parsed(raw)
        config = body["config"]
        if body["artifactType"] != ARTIFACT or config["mediaType"] != LISTING:
            raise ValueError
        files = tuple(_file(one) for one in body["layers"] if TITLE in one.get("annotations", {}))
        listing = parsed(repository.blob(_digest(config["digest"]), name))
        if not isinstance(listing, dict):
            raise ValueError
        return Artifact(digest, str(body["annotations"][POD]), files, listing)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RegistryFault(
            f"{name} is not what a pod of ciao pushes.", "Who else may push to that repository?"
        ) from None


def _file(layer: Any) -> ArtifactFile:
    size = layer["size"]
    if not isinstance(size, int) or size < 0:
        raise ValueError
    return ArtifactFile(str(layer["annotations"][TITLE]), _digest(layer["digest"]), size)


def _digest(text: Any) -> str:
    if not isinstance(text, str) or not is_digest(text):
        raise ValueError
    return text
