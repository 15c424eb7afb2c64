"""One repository of a registry: manifests, blobs, uploads."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.auth import Scopes
from ciao_kernel.oci.blob_stream import BlobStream
from ciao_kernel.oci.reference import Reference, digest_of, is_digest
from ciao_kernel.oci.registry import Registry
from ciao_kernel.oci.registry_errors import Answer
from ciao_kernel.oci.upload import Content, Upload

if TYPE_CHECKING:
    pass


def scope(repository: str, actions: str) -> str:
    """Return the scope of a token."""
    return f"repository:{repository}:{actions}"


class Repository:
    """One repository.

    Args:
        registry: Registry of the repository.
        reference: Name of the repository.
        scopes: Scopes for all requests, so that a single token is enough.
    """

    def __init__(self, registry: Registry, reference: Reference, scopes: Scopes) -> None:
        self.registry = registry
        self.reference = reference
        self._scopes = scopes
        self._path = f"{reference.repository}/"

    def manifest(self, version: str, accept: str, name: str) -> Answer:
        """GET a manifest.

        Raises:
            RegistryFault: The image does not exist, or the registry refuses.
        """
        answer = self._call(
            "GET", f"manifests/{version}", f"pull {name}", (200, 404), headers={"Accept": accept}
        )
        if answer.code == 404:
            raise RegistryFault(
                f"there is no image {name}.", "Are registry, name and tag right?", code=404
            )
        return answer

    def has_manifest(self, tag: str, accept: str) -> str:
        """Return the digest of the manifest with that tag; "" if there is none.

        Raises:
            RegistryFault: The registry refuses.
        """
        what, headers = f"pull {self.reference.name}:{tag}", {"Accept": accept}
        answer = self._call("HEAD", f"manifests/{tag}", what, (200, 404), headers=headers)
        digest = answer.headers.get("Docker-Content-Digest", "")
        if answer.code == 404 or is_digest(digest):
            return digest if answer.code == 200 else ""
        # Some registries omit this header; then the body must be a manifest, not a login page.
        answer = self._call("GET", f"manifests/{tag}", what, (200, 404), headers=headers)
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        if answer.code == 200 and kind not in accept.split(", "):
            raise RegistryFault(
                f"{self.registry.name} does not answer like a registry ({what}): "
                f"it sent {kind or 'no content type'}.",
                "Is the host right, or is a proxy's login page in between?",
            )
        return digest_of(answer.body) if answer.code == 200 else ""

    def put_manifest(self, tag: str, media_type: str, raw: bytes) -> None:
        """PUT a manifest, which creates the image.

        Raises:
            RegistryFault: The registry refuses.
        """
        headers = {"Content-Type": media_type}
        answer = self._call(
            "PUT", f"manifests/{tag}", self._push, (201,), headers=headers, data=raw
        )
        made = answer.headers.get("Docker-Content-Digest", "")
        if made.startswith("sha256:") and made != digest_of(raw):
            raise RegistryFault(
                f"{self.registry.name} changed the image during the push ({self._push}).",
                "Does it convert images? Name another repository: %registry=….",
            )

    def delete_manifest(self, version: str) -> None:
        """DELETE a manifest with all its tags; no error if there is none.

        Args:
            version: Its digest, or a tag: some registries keep the tags of a digest.

        Raises:
            RegistryFault: The registry refuses; many do not delete.
        """
        what = f"delete from {self.reference.name}"
        self._call("DELETE", f"manifests/{version}", what, (200, 202, 404))

    def blob(self, digest: str, name: str) -> bytes:
        """GET a small blob, and check its digest.

        Raises:
            RegistryFault: It does not exist, or is damaged.
        """
        raw = self._call("GET", f"blobs/{digest}", f"pull {name}").body
        if digest_of(raw) != digest:
            raise RegistryFault(f"a part of {name} is damaged: {digest}.", passing=True)
        return raw

    def has_blob(self, digest: str) -> bool:
        """Return whether a blob exists.

        Raises:
            RegistryFault: The registry refuses.
        """
        return self._call("HEAD", f"blobs/{digest}", self._push, (200, 404)).code == 200

    def open_blob(self, digest: str, size: int, name: str, start: int = 0) -> BlobStream:
        """GET a blob as a stream; the caller closes it.

        Args:
            digest: Digest of the blob.
            size: Size of the whole blob in bytes.
            name: Name of the image, for messages.
            start: Number of bytes at the beginning to leave out.

        Raises:
            RegistryFault: It does not exist.
        """
        place, what = f"{self._path}blobs/{digest}", f"pull {name}"
        answer = self.registry.open(place, self._scopes, what, start)
        return BlobStream(answer, size, name, start)

    def mount(self, digest: str, origin: str) -> tuple[bool, str]:
        """Mount a blob of another repository of this registry into this one.

        Returns:
            True and "" if the blob was mounted. Otherwise False and the address of an upload that
            the registry opened instead, usable for any blob; "" if it opened none.

        Raises:
            RegistryFault: The registry refuses.
        """
        query = urlencode({"mount": digest, "from": origin})
        answer = self._call(
            "POST", f"blobs/uploads/?{query}", self._push, (201, 202, 400, 401, 403, 404)
        )
        return answer.code == 201, self._location(answer) if answer.code == 202 else ""

    def begin(self) -> str:
        """Open an upload and return its address.

        Raises:
            RegistryFault: The registry refuses.
        """
        return self._location(self._call("POST", "blobs/uploads/", self._push, (202,)))

    def upload(self, place: str, digest: str, content: Content, size: int) -> None:
        """Send a blob to the address from :meth:`begin` or :meth:`mount`.

        Raises:
            RegistryFault: The registry refuses, or the upload was interrupted and cannot go on.
        """
        Upload(self.registry, self._scopes, self._push, digest, content, size).send(place)

    def cancel(self, place: str) -> None:
        """End an upload without a blob; registries that cannot do so forget it later.

        Args:
            place: Address from :meth:`begin`.
        """
        with suppress(RegistryFault):
            self.registry.call("DELETE", place, self._scopes, accept=(200, 204), what=self._push)

    @property
    def _push(self) -> str:
        return f"push to {self.reference.name}"

    def _location(self, answer: Answer) -> str:
        place = self.registry.where(answer)
        if not place:
            raise RegistryFault(f"{self.registry.name} did not open an upload.", passing=True)
        return place

    def _call(
        self, method: str, path: str, what: str, accept: tuple[int, ...] = (200,), **more: Any
    ) -> Answer:
        data = more.get("data")
        size = len(data) if isinstance(data, bytes) else 0
        return self.registry.call(
            method, self._path + path, self._scopes, accept=accept, what=what, size=size, **more
        )
