"""The user's registries: opened when they are needed, and kept for the next cell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ciao_kernel.oci import credentials
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registry import Registry

_Key = tuple[str, Credentials | None]
"""Host and credentials."""
_FRESH = 300.0
"""Seconds for which found credentials are used without a new lookup: a helper may take a second."""


class Registries:
    """Opens registries with the credentials of docker and podman.

    Args:
        plain: Hosts that use http; all others are used only with https.
        authority: File with the certificate of the private registries' authority, if any.
        find: Finds the credentials for an image; by default in the files of docker and podman.
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
        """Host and credentials for each image name, with their expiry."""
        self._open: dict[_Key, Registry] = {}

    def of(self, image: Reference) -> Registry:
        """Return the registry of an image; there is one object for each account of a registry.

        Raises:
            RegistryFault: The user's credentials or the authority cannot be read.
        """
        old, until = self._found.get(image.name, (None, 0.0))
        registry = self._open.get(old) if old else None
        if time.monotonic() < until and registry is not None and not registry.refused:
            return registry
        known = self._find(image)  # after a refusal, at once: the user may have signed in
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
            # Close the connections of an old password; running requests still complete.
            with contextlib.suppress(KeyError):
                self._open.pop(old).close()
        return registry

    def refused(self, image: Reference) -> bool:
        """Return whether the registry has refused the credentials for an image."""
        key, _ = self._found.get(image.name, (None, 0.0))
        registry = self._open.get(key) if key else None
        return registry is not None and registry.refused

    def forget(self) -> None:
        """Look up all credentials again at their next use: they may have changed."""
        self._found = {name: (key, 0.0) for name, (key, _) in list(self._found.items())}

    def close(self) -> None:
        """Close all connections."""
        self._found.clear()
        while self._open:
            self._open.popitem()[1].close()
