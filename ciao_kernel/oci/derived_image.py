"""Config, manifest and tag of an image with additional layers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ciao_kernel.oci.image import Image
from ciao_kernel.oci.layer import Layer
from ciao_kernel.oci.reference import digest_of

_VERSION = 1
"""Version of the image format of ciao: a new version changes all tags."""


@dataclass(frozen=True, slots=True)
class Change:
    """Changes to the image's config.

    Args:
        env: Environment variables; existing ones of the same name are replaced.
        labels: Labels; existing ones of the same name are replaced.
        workdir: The working directory; "" keeps the existing one.
    """

    env: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    workdir: str = ""


def tag_of(image: Image, layers: Sequence[Layer], change: Change) -> str:
    """Return the tag of an image, a digest of all its inputs."""
    parts = [
        _VERSION,
        image.digest,
        [layer.diff_id for layer in layers],
        sorted(change.env),
        sorted(change.labels),
        change.workdir,
    ]
    return f"ciao-{hashlib.sha256(packed(parts)).hexdigest()[:32]}"


def config_of(image: Image, layers: Sequence[Layer], change: Change) -> dict[str, Any]:
    """Return the config of an image with additional layers."""
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


def manifest_of(image: Image, layers: Sequence[Layer], config: bytes) -> dict[str, Any]:
    """Return the manifest of an image with additional layers and a new config, given as bytes."""
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
            "digest": digest_of(config),
        },
        # Without the base's annotations: they describe another image.
        "layers": [*image.manifest["layers"], *ours],
    }


def packed(value: Any) -> bytes:
    """Return canonical JSON: equal values give the same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
