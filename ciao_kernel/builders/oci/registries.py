"""The registries that a user works with: opened when they are needed, kept for the next cell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ciao_kernel.builders.oci import credentials
from ciao_kernel.builders.oci.credentials import Credentials
from ciao_kernel.builders.oci.reference import Reference
from ciao_kernel.builders.oci.registry import Registry

_Key = tuple[str, Credentials | None]
"""Host, and who asks."""
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
        self._found: dict[str, tuple[_Key, float]] = {}
        """Who asks for the images of a name, and until when that counts."""
        self._open: dict[_Key, Registry] = {}

    def of(self, image: Reference) -> Registry:
        """The registry of an image; one for each account of a registry.

        Raises:
            RegistryFault: The user's credentials or the authority cannot be read.
        """
        old, until = self._found.get(image.name, (None, 0.0))
        registry = self._open.get(old) if old else None
        if time.monotonic() < until and registry is not None and not registry.refused:
            return registry
        known = self._find(image)  # after a refusal at once: there may have been a login
        key = (image.host, known)
        self._found[image.name] = key, time.monotonic() + _FRESH
        registry = self._open.get(key)
        if registry is None:
            registry = self._open[key] = Registry(
                image.host,
                known,
                plain=image.registry in self._plain,
                authority=self._authority,
                name=image.registry,
            )
        if old and old != key and all(one != old for one, _ in list(self._found.values())):
            # An old password's: what is on its way there comes to its end.
            with contextlib.suppress(KeyError):
                self._open.pop(old).close()
        return registry

    def forget(self) -> None:
        """Look all credentials up anew: others may be known now."""
        self._found = {name: (key, 0.0) for name, (key, _) in list(self._found.items())}

    def close(self) -> None:
        """Close all connections."""
        self._found.clear()
        while self._open:
            self._open.popitem()[1].close()
