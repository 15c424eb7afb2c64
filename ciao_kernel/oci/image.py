"""What an image is: its manifest, its config, and which one of several platforms.

https://github.com/opencontainers/image-spec: manifest.md, config.md, image-index.md; and the older
kinds of Docker, https://distribution.github.io/distribution/spec/manifest-v2-2/
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.repository import Repository

_OCI = "application/vnd.oci.image"
_DOCKER = "application/vnd.docker"
_INDEXES = (f"{_OCI}.index.v1+json", f"{_DOCKER}.distribution.manifest.list.v2+json")
_MANIFESTS = (f"{_OCI}.manifest.v1+json", f"{_DOCKER}.distribution.manifest.v2+json")
_LAYERS = {
    _MANIFESTS[0]: f"{_OCI}.layer.v1.tar+gzip",
    _MANIFESTS[1]: f"{_DOCKER}.image.rootfs.diff.tar.gzip",
}
ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))


@dataclass(frozen=True, slots=True)
class Platform:
    """What a node runs, in Go's words."""

    architecture: str = "amd64"
    os: str = "linux"
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}" + (f"/{self.variant}" if self.variant else "")


@dataclass(frozen=True, slots=True)
class Image:
    """One image of one platform."""

    digest: str
    """Of the manifest."""
    media_type: str
    manifest: dict[str, Any]
    config: dict[str, Any]

    @property
    def layer_type(self) -> str:
        """The media type of a gzipped layer in an image of this family."""
        return _LAYERS[self.media_type]

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its config."""
        found = _dict(self.config.get("config")).get("Labels")
        return {str(key): str(value) for key, value in _dict(found).items()}

    @property
    def env(self) -> dict[str, str]:
        """The variables of its config."""
        found = _dict(self.config.get("config")).get("Env")
        pairs = (str(one).partition("=") for one in found) if isinstance(found, list) else ()
        return {name: value for name, _, value in pairs}

    @property
    def user(self) -> str:
        """The user that it runs as; "" is root."""
        return str(_dict(self.config.get("config")).get("User") or "")


class Images:
    """Reads images, and keeps what can never change: that of a digest."""

    def __init__(self) -> None:
        self._known: dict[str, Image] = {}

    def read(self, repository: Repository, version: str, platform: Platform) -> Image:
        """Return the image of a platform.

        Args:
            repository: Where it is.
            version: Tag or digest.
            platform: Which one, where there are several.

        Raises:
            RegistryFault: There is none, or none that could run.
        """
        name = f"{repository.reference.name}:{version}".replace(":sha256:", "@sha256:")
        if f"{version} {platform}" in self._known:
            return self._known[f"{version} {platform}"]
        digest, kind, body = _manifest(repository, version, name)
        if kind in _INDEXES:
            chosen = _choose(body, platform, name)
            digest, kind, body = _manifest(repository, chosen, name)
        if digest not in self._known:
            self._known[digest] = _image(repository, digest, kind, body, name)
        image = self._known[digest]
        if image.config.get("architecture", platform.architecture) != platform.architecture:
            raise RegistryFault(
                f"{name} is for {image.config['architecture']}, and the nodes are {platform}.",
                "Name an image for the nodes' platform: %image=….",
            )
        if version.startswith("sha256:"):
            self._known[f"{version} {platform}"] = image
        return image


def _manifest(repository: Repository, version: str, name: str) -> tuple[str, str, dict[str, Any]]:
    answer = repository.manifest(version, ACCEPT, name)
    raw = answer.content
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    if version.startswith("sha256:") and digest != version:
        raise RegistryFault(f"{name} is not what its digest says: it has the digest {digest}.", "")
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RegistryFault(f"the manifest of {name} is no JSON.", "Is a proxy in between?")
    kind = str(body.get("mediaType") or answer.headers.get("Content-Type", "").partition(";")[0])
    if kind not in (*_INDEXES, *_MANIFESTS):
        raise RegistryFault(
            f"{name} has a manifest of the kind {kind or 'unknown'}, which no node runs today.",
            "Push it again with a current tool.",
        )
    return digest, kind, body


def _choose(index: dict[str, Any], platform: Platform, name: str) -> str:
    entries = [one for one in index.get("manifests") or () if isinstance(one, dict)]
    offered = []
    for one in entries:
        found = _dict(one.get("platform"))
        have = Platform(
            str(found.get("architecture")), str(found.get("os")), str(found.get("variant") or "")
        )
        if have.os == "unknown":  # an attestation, not an image
            continue
        offered.append(str(have))
        same = (have.os, have.architecture) == (platform.os, platform.architecture)
        if same and platform.variant in ("", have.variant):
            return str(one.get("digest"))
    raise RegistryFault(
        f"{name} has no image for {platform}; it has {', '.join(offered) or 'none at all'}.",
        "Name an image for the nodes' platform: %image=….",
    )


def _image(
    repository: Repository, digest: str, kind: str, body: dict[str, Any], name: str
) -> Image:
    described = _dict(body.get("config"))
    try:
        config = json.loads(repository.blob(str(described.get("digest")), name))
    except ValueError:
        config = None
    layers, rootfs = body.get("layers"), _dict(_dict(config).get("rootfs"))
    if not isinstance(layers, list) or len(layers) != len(rootfs.get("diff_ids") or ()):
        raise RegistryFault(
            f"{name} is no image that can run: it has no file system.",
            "Is it a chart or an artefact?",
        )
    return Image(digest, kind, body, _dict(config))


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
