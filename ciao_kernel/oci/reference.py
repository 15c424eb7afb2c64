"""Names of images: ``host:5000/team/model:tag@sha256:…``.

The grammar is from https://github.com/distribution/reference.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from ciao_kernel.errors import UsageError

_HUB = "docker.io"
_HUBS = ("index.docker.io", "registry-1.docker.io")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::([0-9]{{1,5}}))?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255
_PORTS = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class Reference:
    """An image; or a repository, if neither tag nor digest is given.

    Args:
        registry: Host and port, as the user writes them.
        repository: Path in the registry.
        tag: Tag without the colon; "" if none was given.
        digest: ``sha256:…``; it takes precedence over the tag.
    """

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def host(self) -> str:
        """Return the host for requests: Docker Hub's differs from the host in its image names."""
        return "registry-1.docker.io" if self.registry == _HUB else self.registry

    @property
    def version(self) -> str:
        """Return the version for paths of the API: the digest, else the tag, else ``latest``."""
        return self.digest or self.tag or "latest"

    @property
    def name(self) -> str:
        """Return registry and repository."""
        return f"{self.registry}/{self.repository}"

    def at(self, digest: str) -> Reference:
        """Return the image with that digest in this repository: it can never change."""
        return replace(self, tag="", digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")


def parse(text: str) -> Reference:
    """Parse an image's name like Docker and Kubernetes: ``python:3.13`` is on Docker Hub.

    Raises:
        UsageError: The name is not valid; the message names the wrong part.
    """
    rest, at, digest = text.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        if not digest.startswith(("sha256:", "sha512:")):
            # Possibly "user:password@host", which must not be in a message.
            raise UsageError(
                "an image's name cannot have a user or password before an @.",
                "Store them by `docker login` or in a Secret; a digest is @sha256: and 64 hex "
                "digits.",
            )
        raise _wrong(text, f"{digest} is not a digest", "A digest is sha256: and 64 hex digits.")
    first, slash, path = rest.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, path = _HUB, rest
    if first.lower() in _HUBS:
        first = _HUB
    path, colon, tag = path.partition(":")
    if first == _HUB and "/" not in path:
        path = f"library/{path}"
    host = _HOST.fullmatch(first)
    if not host or (host[1] and int(host[1]) not in _PORTS):
        raise _wrong(
            text, f"{first} is not a host", "A registry is a host: ghcr.io, localhost:5000."
        )
    if len(path) > _LONGEST or not _REPOSITORY.fullmatch(path):
        shown = path.removeprefix("library/")
        hint = "A repository has lower case letters and digits, with . _ - in between."
        raise _wrong(text, f"{shown or 'an empty text'} is not a repository", hint)
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(
            text,
            f"{tag or 'an empty text'} is not a tag",
            "A tag is up to 128 of A-Z a-z 0-9 _ . -",
        )
    return Reference(first, path, tag, digest)


def is_digest(text: str) -> bool:
    """Return whether a text is a digest that identifies an image."""
    return bool(_DIGEST.fullmatch(text))


def digest_of(raw: bytes) -> str:
    """Return the digest of some bytes, which is their name in a registry."""
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _wrong(text: str, why: str, hint: str) -> UsageError:
    return UsageError(f"{text!r} is not an image's name: {why}.", hint)
