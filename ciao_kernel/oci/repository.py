"""One repository of a registry: manifests, blobs, uploads."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlencode, urljoin

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.auth import Scopes
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registry import Registry

if TYPE_CHECKING:
    import requests

_BYTES = "application/octet-stream"


def scope(repository: str, actions: str) -> str:
    """What a token is asked for."""
    return f"repository:{repository}:{actions}"


class Repository:
    """One repository.

    Args:
        registry: Where it is.
        reference: Its name.
        scopes: Everything that the work with it needs, so that one token serves it all.
    """

    def __init__(self, registry: Registry, reference: Reference, scopes: Scopes) -> None:
        self.registry = registry
        self.reference = reference
        self._scopes = scopes
        self._path = f"{reference.repository}/"

    def manifest(self, version: str, accept: str, name: str) -> requests.Response:
        """GET a manifest.

        Raises:
            RegistryFault: There is none of that name, or the registry says no.
        """
        answer = self._call(
            "GET", f"manifests/{version}", f"pull {name}", (200, 404), headers={"Accept": accept}
        )
        if answer.status_code == 404:
            raise RegistryFault(
                f"there is no image {name}.", "Are registry, name and tag right?", code=404
            )
        return answer

    def has_manifest(self, tag: str, accept: str) -> str:
        """The digest of what has that tag; "" if nothing has."""
        answer = self._call("HEAD", f"manifests/{tag}", "", (200, 404), headers={"Accept": accept})
        return answer.headers.get("Docker-Content-Digest", "") if answer.ok else ""

    def put_manifest(self, tag: str, media_type: str, raw: bytes) -> None:
        """PUT a manifest: from now on the image exists."""
        headers = {"Content-Type": media_type}
        self._call("PUT", f"manifests/{tag}", self._push, (201,), headers=headers, data=raw)

    def blob(self, digest: str, name: str) -> bytes:
        """GET a small blob whole, and see that it is what its digest says."""
        raw = self._call("GET", f"blobs/{digest}", f"pull {name}").content
        if f"sha256:{hashlib.sha256(raw).hexdigest()}" != digest:
            raise RegistryFault(f"a part of {name} is damaged: {digest}.", "", passing=True)
        return raw

    def has_blob(self, digest: str) -> bool:
        """Whether a blob is there."""
        return self._call("HEAD", f"blobs/{digest}", self._push, (200, 404)).status_code == 200

    def open_blob(self, digest: str, name: str) -> requests.Response:
        """GET a blob as a stream that is not decoded."""
        return self._call("GET", f"blobs/{digest}", f"pull {name}", stream=True)

    def mount(self, digest: str, origin: str) -> str:
        """Make a blob of another repository of this registry one of ours.

        Returns:
            "" when it is; else where to upload it.
        """
        query = urlencode({"mount": digest, "from": origin})
        answer = self._call(
            "POST", f"blobs/uploads/?{query}", self._push, (201, 202, 401, 403, 404, 400)
        )
        if answer.status_code == 201:
            return ""
        return self._location(answer) if answer.status_code == 202 else self.begin()

    def begin(self) -> str:
        """Open an upload and return where it goes."""
        return self._location(self._call("POST", "blobs/uploads/", self._push, (202,)))

    def upload(self, place: str, digest: str, body: bytes | IO[bytes], size: int) -> None:
        """PUT a blob to where :meth:`begin` or :meth:`mount` said."""
        joint = "&" if "?" in place else "?"
        headers = {"Content-Type": _BYTES, "Content-Length": str(size)}
        self.registry.call(
            "PUT",
            f"{place}{joint}{urlencode({'digest': digest})}",
            self._scopes,
            accept=(201,),
            headers=headers,
            data=body,
            size=size,
            what=self._push,
        )

    @property
    def _push(self) -> str:
        return f"push to {self.reference.name}"

    def _location(self, answer: requests.Response) -> str:
        place = answer.headers.get("Location", "")
        if not place:
            raise RegistryFault(f"{self.registry.host} opens no upload.", "", passing=True)
        return urljoin(answer.url, place)

    def _call(
        self, method: str, path: str, what: str, accept: tuple[int, ...] = (200,), **more: Any
    ) -> requests.Response:
        data = more.get("data")
        size = len(data) if isinstance(data, bytes) else 0
        return self.registry.call(
            method, self._path + path, self._scopes, accept=accept, what=what, size=size, **more
        )
