"""Brings layers into the repository of an image: mounted, copied from another registry, or sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context

from ciao_kernel.oci.blob_stream import BlobStream
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.layer import Layer
from ciao_kernel.oci.reference import digest_of
from ciao_kernel.oci.repository import Repository
from ciao_kernel.oci.upload import Content

_SMALL = 64 << 10
"""Size in bytes below which a layer is sent without a check whether the registry has it."""

ProgressCallback = Callable[[str, int, int], None]
"""Progress callback for a layer copied from another registry: digest, bytes done, total bytes.
An exception that it raises ends the work."""


class LayerTransfer:
    """Transfers layers, and remembers which ones each repository has."""

    def __init__(self) -> None:
        self._there: set[tuple[str, str]] = set()
        """Pairs of a repository and the digest of a layer that it has."""

    def forget(self) -> None:
        """Forget which layers the registries have: some may have been removed since."""
        self._there.clear()

    def bring(
        self, origin: Repository, there: Repository, image: Image, tell: ProgressCallback | None
    ) -> str:
        """Ensure that the layers of the base are in the new image's repository.

        Args:
            origin: The repository of the base.
            there: That of the new image.
            image: The base.
            tell: Receives the progress of layers that come from another registry.

        Returns:
            Address of an unused upload, which the registry opened instead of mounting a layer that
            it had already; "" if there is none.
        """
        opened, mounts = "", True
        base, target = origin.reference, there.reference
        for layer in image.manifest["layers"]:
            digest, size = str(layer["digest"]), int(layer["size"])
            if layer.get("urls") or base.name == target.name:
                continue  # an external layer, or already there
            if (target.name, digest) in self._there:
                continue
            near = base.host == target.host
            asked = not (near and mounts)
            known, place = asked and there.has_blob(digest), ""
            if near and not known:
                # Instead of mounting, a registry may open an upload, which cannot be cancelled with
                # only the right to push. The first one is used for another blob; from then on,
                # each blob is looked up first, and not mounted if it exists.
                known, place = there.mount(digest, base.repository)
                mounts = mounts and known
                known = known or (not asked and there.has_blob(digest))
            if known:
                opened = opened or place
            else:
                content = _of(origin, digest, size, tell)
                there.upload(place or there.begin(), digest, content, size)
            self._there.add((target.name, digest))
        return opened

    def upload(
        self, there: Repository, layers: Sequence[Layer], config: bytes, opened: str = ""
    ) -> None:
        """Upload layers, and the config in parallel: a registry needs time to store each.

        If a layer fails, the config's thread ends by itself, and its result is not awaited: a blob
        without a manifest is no image.

        Args:
            there: The repository.
            layers: New layers.
            config: The image's config.
            opened: Address of an unused upload, which is used for the config; "" if there is none.
        """
        sent: Future[None] = Future()

        def send() -> None:
            try:
                place = opened or there.begin()
                there.upload(place, digest_of(config), lambda at: config[at:], len(config))
            except BaseException as error:
                sent.set_exception(error)
            else:
                sent.set_result(None)

        run = copy_context().run
        threading.Thread(target=run, args=(send,), name="ciao-config", daemon=True).start()
        for layer in layers:
            self._send(there, layer)
        sent.result()

    def _send(self, there: Repository, layer: Layer) -> None:
        """Upload a new layer, unless it is there: packages stay the same while the cell changes."""
        known = (there.reference.name, layer.digest)
        if known in self._there:
            return
        if layer.size < _SMALL or not there.has_blob(layer.digest):
            there.upload(there.begin(), layer.digest, layer.open, layer.size)
        self._there.add(known)


def _of(origin: Repository, digest: str, size: int, tell: ProgressCallback | None) -> Content:
    """Return the content of a layer of a base, which comes from another registry."""

    def content(start: int) -> BlobStream:
        blob = origin.open_blob(digest, size, str(origin.reference), start)
        if tell:
            blob.on_progress = lambda done: tell(digest, done, size)
        return blob

    return content
