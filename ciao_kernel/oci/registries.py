"""The registries that a user works with: opened when they are needed, kept for the next cell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ciao_kernel.oci import credentials
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registry import Registry

_FRESH = 300.0
"""Seconds for which credentials are not looked up anew: a helper may take a second."""


class Registries:
    """Opens registries with the credentials of docker and podman.

    Args:
        plain: Hosts that speak http; no other is ever spoken to in the clear.
        authority: File of the certificate that signs those of private registries; None for none.
        find: Finds who asks for an image, where it is not in the files of docker and podman.
    """

    def __init__(
        self,
        plain: Iterable[str] = (),
        authority: Path | None = None,
        find: Callable[[Reference], Credentials | None] = credentials.find,
    ) -> None:
        self._plain = frozenset(plain)
        self._authority = authority
        self._find = find
        self._found: dict[str, tuple[Credentials | None, float]] = {}
        self._open: dict[tuple[str, Credentials | None], Registry] = {}

    def of(self, image: Reference) -> Registry:
        """The registry of an image; one for each account of a registry.

        Raises:
            RegistryFault: The user's credentials or the authority cannot be read.
        """
        known, until = self._found.get(image.name, (None, 0.0))
        registry = self._open.get((image.host, known))
        if time.monotonic() >= until or registry is None or registry.refused:
            known = self._find(image)  # after a refusal at once: there may have been a login
            self._found[image.name] = known, time.monotonic() + _FRESH
            registry = self._open.get((image.host, known))
        if registry is None:
            registry = self._open[image.host, known] = Registry(
                image.host,
                known,
                plain=image.registry in self._plain,
                authority=self._authority,
                name=image.registry,
            )
        return registry

    def forget(self) -> None:
        """Look all credentials up anew: others may be known now."""
        self._found.clear()

    def close(self) -> None:
        """Close all connections."""
        self._found.clear()
        while self._open:
            self._open.popitem()[1].close()
