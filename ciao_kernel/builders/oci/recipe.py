"""What an image becomes by layers on top of it: its config, its manifest, its tag."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ciao_kernel.builders.oci.image import Image
from ciao_kernel.builders.oci.layer import Layer

_VERSION = 1
"""Of what an image looks like: a change makes all tags new."""


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


def tag_of(image: Image, layers: Sequence[Layer], change: Change) -> str:
    """The tag of an image: nothing that makes it is left out."""
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
    """The config of an image and some layers."""
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
    """The manifest of an image and some layers, whose config is there in bytes."""
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
        # Without the base's annotations: they tell of another image.
        "layers": [*image.manifest["layers"], *ours],
    }


def packed(value: Any) -> bytes:
    """JSON that is the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest_of(raw: bytes) -> str:
    """The name of some bytes in a registry."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
