"""Context of a build as one layer, always packed to the same bytes, and as a ConfigMap."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from ciao_kernel.builders.dockerfile_rewrite import CONTEXT_FOLDER
from ciao_kernel.delivery.input.held_file import open_checked
from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import Manifest
from ciao_kernel.oci.layer import File, Layer, pack

LIMIT = 900 << 10
"""Packed bytes that fit into a ConfigMap of at most 1 MiB; a larger context uses the registry."""
KEY = "context.tar.gz"
_CHUNK = 1 << 20
_IN_MEMORY = 16 << 20


def size_of(file: File) -> int:
    """Return the bytes of a file."""
    known = file.content
    return len(known) if isinstance(known, bytes) else known.stat().st_size


def digest(files: Iterable[File], check: Callable[[], None]) -> str:
    """Return a digest of files, without packing them.

    Raises:
        SourceError: A file cannot be read.
    """
    hasher = hashlib.sha256()
    for file in sorted(files, key=lambda one: one.path):
        hasher.update(json.dumps([file.path, file.executable, _hash(file, check)]).encode())
    return hasher.hexdigest()


def _hash(file: File, check: Callable[[], None]) -> str:
    if isinstance(file.content, bytes):
        return hashlib.sha256(file.content).hexdigest()
    hasher = hashlib.sha256()
    try:
        with open_checked(file.content) as opened:
            while chunk := opened.read(_CHUNK):
                check()
                hasher.update(chunk)
    except OSError as error:
        raise unreadable(error) from None
    return hasher.hexdigest()


def unreadable(error: OSError) -> SourceError:
    """Return the error for a file that cannot be read."""
    return SourceError(
        f"{error.filename} cannot be read: {error.strerror}.", "Fix its permissions."
    )


def pack_context(files: Iterable[File], folder: Path, check: Callable[[], None]) -> Layer:
    """Pack files; a large layer is packed on disk.

    Raises:
        SourceError: A file cannot be read.
        EnvironmentFault: The disk is full.
    """
    chosen = tuple(files)
    try:
        size = sum(map(size_of, chosen))
        return pack(
            chosen, folder / KEY if size > _IN_MEMORY else None, on_progress=lambda _: check()
        )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"no space is left in {folder.parent} to pack the files of the build.",
                "Free some space, or send fewer files.",
            ) from None
        raise unreadable(error) from None


def in_image(files: Iterable[File]) -> tuple[File, ...]:
    """Return the files with their paths in the image that carries a large context."""
    return tuple(File(f"{CONTEXT_FOLDER}/{one.path}", one.content, one.executable) for one in files)


def config_map(name: str, layer: Layer, authority: bytes | None) -> Manifest:
    """Return the ConfigMap with a small context, and with the authority of private registries."""
    data = {KEY: layer.content if isinstance(layer.content, bytes) else layer.content.read_bytes()}
    if authority is not None:
        data["ca.crt"] = authority
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "immutable": True,
        "binaryData": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
