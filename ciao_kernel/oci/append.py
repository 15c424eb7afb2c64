"""Appends layers to an image, through the registry's API alone: no pod, no daemon, no root.

What is in the registry already is neither sent nor asked for twice: an image's tag is the digest
of all that it is made of, so that an unchanged cell costs two requests.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.auth import Scopes
from ciao_kernel.oci.image import ACCEPT, Image, Images, Platform
from ciao_kernel.oci.layer import Layer
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registry import Registry
from ciao_kernel.oci.repository import Repository, scope

if TYPE_CHECKING:
    import requests

_VERSION = 1
"""Of what an image looks like: a change makes all tags new."""
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes other in the image's config.

    Args:
        env: Variables; those of the same name are replaced.
        labels: The same.
        workdir: The working directory; "" leaves it.
    """

    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    workdir: str = ""


@dataclass(frozen=True, slots=True)
class Appended:
    """The image that came of it.

    Args:
        image: By its digest.
        tag: The name that it has in its repository.
        unchanged: It was there already.
    """

    image: Reference
    tag: str
    unchanged: bool


class Appender:
    """Appends; one object serves many cells, and remembers the bases that it has read.

    Args:
        registry: Returns the registry of an image.
    """

    def __init__(self, registry: Callable[[Reference], Registry]) -> None:
        self._registry = registry
        self._images = Images()
        self._there: set[tuple[str, str]] = set()
        """Layers of bases, and the repositories that they were brought to."""

    def inspect(self, base: Reference, platform: Platform) -> Image:
        """Read an image's manifest and config.

        Raises:
            RegistryFault: There is none, or it cannot be read.
        """
        return self._images.read(self._readable(base), base.version, platform)

    def find(self, target: Reference, tag: str) -> Reference | None:
        """The image of a tag, if it is there.

        Raises:
            RegistryFault: The registry cannot be asked.
        """
        digest = self._readable(target).has_manifest(tag, ACCEPT)
        return target.at(digest) if digest else None

    def append(
        self,
        base: Reference,
        target: Reference,
        layers: Sequence[Layer],
        change: Change,
        platform: Platform,
        *,
        anew: bool = False,
    ) -> Appended:
        """Make the image that is a base and some layers, unless it is there.

        Args:
            base: The image to begin with.
            target: The repository that gets the new one.
            layers: In order.
            change: Of the config.
            platform: Of the nodes.
            anew: Push everything again: a part of what is there was lost.

        Raises:
            RegistryFault: A registry says no, or stays away.
        """
        wait = 0.5
        for attempt in range(_ATTEMPTS):
            try:
                return self._append(base, target, layers, change, platform, anew)
            except RegistryFault as error:
                # All of it again: an upload that was cut cannot be gone on with.
                if not error.passing or attempt == _ATTEMPTS - 1:
                    raise
                self._there.clear()  # one may have been removed since
                time.sleep(wait)
                wait *= 2
        raise AssertionError("the last attempt returns or raises")

    def _append(
        self,
        base: Reference,
        target: Reference,
        layers: Sequence[Layer],
        change: Change,
        platform: Platform,
        anew: bool,
    ) -> Appended:
        # The scope to push to first: some registries look at that one alone.
        push = scope(target.repository, "pull,push")
        together = base.host == target.host
        scopes = (push, scope(base.repository, "pull")) if together else (push,)
        there = Repository(self._registry(target), target, scopes)
        origin = Repository(there.registry, base, scopes) if together else self._readable(base)
        image = self._images.read(origin, base.version, platform)
        tag = _tag(image, layers, change)
        if not anew and (digest := there.has_manifest(tag, ACCEPT)):
            return Appended(target.at(digest), tag, unchanged=True)
        for layer in image.manifest["layers"]:
            known = (target.name, str(layer.get("digest")))
            if known not in self._there:
                _bring(origin, there, layer, together)
                self._there.add(known)
        for layer in layers:
            body = layer.open()
            with contextlib.nullcontext() if isinstance(body, bytes) else body:
                there.upload(there.begin(), layer.digest, body, layer.size)
        config = _bytes(_config(image, layers, change))
        there.upload(there.begin(), _digest(config), config, len(config))
        manifest = _bytes(_manifest(image, layers, config))
        there.put_manifest(tag, image.media_type, manifest)
        return Appended(target.at(_digest(manifest)), tag, unchanged=False)

    def _readable(self, image: Reference) -> Repository:
        scopes: Scopes = (scope(image.repository, "pull"),)
        return Repository(self._registry(image), image, scopes)


def _tag(image: Image, layers: Sequence[Layer], change: Change) -> str:
    parts = [
        _VERSION,
        image.digest,
        [layer.diff_id for layer in layers],
        sorted(change.env),
        sorted(change.labels),
        change.workdir,
    ]
    return f"ciao-{hashlib.sha256(_bytes(parts)).hexdigest()[:32]}"


def _bring(origin: Repository, there: Repository, layer: dict[str, Any], together: bool) -> None:
    """See that a layer of the base is in the new image's repository."""
    if layer.get("urls") or origin.reference.name == there.reference.name:
        return  # from elsewhere by design, or there already
    digest = str(layer["digest"])
    if together:
        place = there.mount(digest, origin.reference.repository)
    else:
        place = "" if there.has_blob(digest) else there.begin()
    if place:
        size = int(layer["size"])
        with contextlib.closing(origin.open_blob(digest, str(origin.reference))) as answer:
            there.upload(place, digest, cast(IO[bytes], _Stream(answer, size)), size)


def _config(image: Image, layers: Sequence[Layer], change: Change) -> dict[str, Any]:
    inner = dict(image.config.get("config") or {})
    if change.env:
        env = {**image.env, **dict(change.env)}
        inner["Env"] = [f"{name}={value}" for name, value in env.items()]
    if change.labels:
        inner["Labels"] = {**image.labels, **dict(change.labels)}
    if change.workdir:
        inner["WorkingDir"] = change.workdir
    rootfs = dict(image.config["rootfs"])
    rootfs["diff_ids"] = [*rootfs["diff_ids"], *(layer.diff_id for layer in layers)]
    found = {**image.config, "config": inner, "rootfs": rootfs}
    if history := image.config.get("history"):
        found["history"] = [*history, *({"created_by": "ciao"} for _ in layers)]
    return found


def _manifest(image: Image, layers: Sequence[Layer], config: bytes) -> dict[str, Any]:
    ours = [
        {"mediaType": image.layer_type, "size": layer.size, "digest": layer.digest}
        for layer in layers
    ]
    return {
        "schemaVersion": 2,
        "mediaType": image.media_type,
        "config": {
            "mediaType": image.manifest["config"]["mediaType"],
            "size": len(config),
            "digest": _digest(config),
        },
        # Without the base's annotations: they tell of another image.
        "layers": [*image.manifest["layers"], *ours],
    }


class _Stream:
    """A blob on its way from one registry to another, with the length that requests asks for."""

    def __init__(self, answer: requests.Response, size: int) -> None:
        self._raw, self._size = answer.raw, size

    def __len__(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._raw.read(size if size >= 0 else None, decode_content=False)
        return data


def _bytes(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
