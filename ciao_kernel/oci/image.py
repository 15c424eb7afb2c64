"""Images: manifest, config, and the selection of a platform.

https://github.com/opencontainers/image-spec: manifest.md, config.md, image-index.md; and Docker's
older formats, https://distribution.github.io/distribution/spec/manifest-v2-2/
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.reference import digest_of, is_digest
from ciao_kernel.oci.registry_errors import parsed, shown
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
_KEPT = 128
"""Maximum number of cached images: each edited cell adds one image."""
_VARIANTS = {"arm64": "v8", "arm": "v7", "amd64": "v1"}
"""Default variants, if a platform names none."""


@dataclass(frozen=True, slots=True)
class Platform:
    """Platform of a node or an image, with the names of Go."""

    architecture: str = "amd64"
    os: str = "linux"
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}" + (f"/{self.variant}" if self.variant else "")


@dataclass(frozen=True, slots=True)
class Image:
    """One image of one platform."""

    digest: str
    """Digest of the manifest."""
    media_type: str
    manifest: dict[str, Any]
    config: dict[str, Any]

    @property
    def layer_type(self) -> str:
        """Return the media type of a gzipped layer in an image of this format."""
        return _LAYERS[self.media_type]

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the config."""
        found = _dict(self.config.get("config")).get("Labels")
        return {str(key): str(value) for key, value in _dict(found).items()}

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables of the config."""
        found = _dict(self.config.get("config")).get("Env")
        pairs = (str(one).partition("=") for one in found) if isinstance(found, list) else ()
        return {name: value for name, _, value in pairs}

    @property
    def user(self) -> str:
        """Return the user that the image runs as; "" means root."""
        return str(_dict(self.config.get("config")).get("User") or "")


def empty(platform: Platform) -> Image:
    """Return an empty image, which is in no registry."""
    config = {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": []},
    }
    manifest = {"config": {"mediaType": f"{_OCI}.config.v1+json"}, "layers": []}
    return Image("", _MANIFESTS[0], manifest, config)


class Images:
    """Reads images, and caches images by digest, which never change."""

    def __init__(self) -> None:
        self._known: dict[str, Image] = {}
        """The most recently used image comes last."""
        self._lock = threading.Lock()

    def read(self, repository: Repository, version: str, platform: Platform) -> Image:
        """Return the image of a platform.

        Args:
            repository: Repository of the image.
            version: Tag or digest.
            platform: Platform of the nodes.

        Raises:
            RegistryFault: The image does not exist, or is not for this platform.
        """
        name = f"{repository.reference.name}:{version}".replace(":sha256:", "@sha256:")
        if known := self._get(f"{version} {platform}"):
            return known
        digest, kind, body = _manifest(repository, version, name)
        if kind in _INDEXES:
            digest = _choose(body, platform, name)
            image = self._get(digest)
            if image is None:
                digest, kind, body = _manifest(repository, digest, name)
        else:
            image = self._get(digest)
        if image is None:
            image = _image(repository, digest, kind, body, name)
            self._keep(digest, image)
        have = Platform(
            str(image.config.get("architecture") or platform.architecture),
            str(image.config.get("os") or platform.os),
        )
        if (have.architecture, have.os) != (platform.architecture, platform.os):
            raise RegistryFault(
                f"{name} is for {shown(str(have))}, but the nodes are {platform}.",
                "Name an image for the nodes' platform: %image=….",
            )
        if version.startswith("sha256:"):
            self._keep(f"{version} {platform}", image)
        return image

    def keep(self, image: Image, platform: Platform) -> None:
        """Cache an image that was created here, so that it is never requested."""
        self._keep(image.digest, image)
        self._keep(f"{image.digest} {platform}", image)

    def _get(self, key: str) -> Image | None:
        with self._lock:
            if image := self._known.pop(key, None):
                self._known[key] = image
            return image

    def _keep(self, key: str, image: Image) -> None:
        with self._lock:
            self._known.pop(key, None)
            self._known[key] = image
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]


def _manifest(repository: Repository, version: str, name: str) -> tuple[str, str, dict[str, Any]]:
    answer = repository.manifest(version, ACCEPT, name)
    digest = digest_of(answer.body)
    if version.startswith("sha256:") and digest != version:
        raise RegistryFault(f"{name} does not match its digest: its content has {digest}.")
    body = parsed(answer.body)
    if not isinstance(body, dict):
        raise RegistryFault(
            f"the manifest of {name} is not a JSON object.",
            "Is the host right, or is a proxy's login page in between?",
        )
    kind = str(body.get("mediaType") or answer.headers.get("Content-Type", "").partition(";")[0])
    if kind not in (*_INDEXES, *_MANIFESTS):
        raise RegistryFault(
            f"{name} has a manifest of the type {shown(kind) or 'unknown'}, "
            "which nodes do not support.",
            "Push it again with a current tool.",
        )
    return digest, kind, body


def _choose(index: dict[str, Any], platform: Platform, name: str) -> str:
    """Return the digest of a platform's manifest."""
    listed = index.get("manifests")
    offered: list[Platform] = []
    found: list[tuple[bool, str, str]] = []
    untold = []
    for one in listed if isinstance(listed, list) else ():
        digest, told = str(_dict(one).get("digest")), _dict(_dict(one).get("platform"))
        if not is_digest(digest) or told.get("os") == "unknown":
            continue  # an attestation, not an image
        if not told.get("architecture"):
            untold.append(digest)  # its config names the platform
            continue
        have = Platform(
            str(told["architecture"]), str(told.get("os")), str(told.get("variant") or "")
        )
        offered.append(have)
        if (have.os, have.architecture) == (platform.os, platform.architecture):
            # Without an exact match, the lowest: newer processors run images for older ones.
            found.append((_variant(have) != _variant(platform), _variant(have), digest))
    if found:
        return min(found, key=lambda one: one[:2])[2]
    if len(untold) == 1:
        return untold[0]
    has = shown(", ".join(dict.fromkeys(map(str, offered))))
    raise RegistryFault(
        f"{name} has no image for {platform}; it has {has or 'none at all'}.",
        "Name an image for the nodes' platform: %image=….",
    )


def _variant(platform: Platform) -> str:
    return platform.variant or _VARIANTS.get(platform.architecture, "")


def _image(
    repository: Repository, digest: str, kind: str, body: dict[str, Any], name: str
) -> Image:
    layers = body.get("layers")
    parts = [body.get("config"), *(layers if isinstance(layers, list) else ())]
    # Check all parts, since their digests become part of addresses.
    if kind not in _MANIFESTS or not isinstance(layers, list) or not all(map(_described, parts)):
        raise RegistryFault(f"the manifest of {name} is broken.", "Push the image again.")
    config = _dict(parsed(repository.blob(body["config"]["digest"], name)))
    diff_ids = _dict(config.get("rootfs")).get("diff_ids")
    if not isinstance(diff_ids, list) or len(diff_ids) != len(layers):
        raise RegistryFault(
            f"{name} is not a runnable image: it has no file system.",
            "Is it a chart or an artefact?",
        )
    inner, history = config.get("config"), config.get("history")
    if not isinstance(inner, dict | None) or not isinstance(history, list | None):
        raise RegistryFault(f"the config of {name} is broken.", "Push the image again.")
    return Image(digest, kind, body, config)


def _described(part: Any) -> bool:
    size, digest = _dict(part).get("size"), str(_dict(part).get("digest"))
    kind = _dict(part).get("mediaType")
    return is_digest(digest) and isinstance(size, int) and size > 0 and isinstance(kind, str)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
