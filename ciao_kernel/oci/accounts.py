"""Registry credentials of a cell: those of this machine, else those of the Secret it names."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ciao_kernel.errors import SpecError
from ciao_kernel.oci import credentials
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registries import Registries
from ciao_kernel.plugins import BuildCluster

DOCKER_KEY = ".dockerconfigjson"
"""Key of a Secret that holds registry passwords."""
_FRESH = 300.0
"""Seconds for which found credentials are not looked up again: a credential helper may take a
second."""


class Accounts:
    """Credentials of all cells that name the same Secret of a namespace; no other cell uses them.

    Args:
        plain: Registries that use plain http.
        authority: Certificate file of the authority that signed private registries.
        name: Name of the Secret; "" means no Secret.
    """

    def __init__(self, plain: Iterable[str], authority: Path | None, name: str) -> None:
        self.name = name
        self.registries = Registries(plain, authority, self._find)
        self._config: dict[str, Any] = {}
        """Content of the Secret at the last read, in the format of docker's ``config.json``."""
        self._signed_in: dict[str, float] = {}
        """Image name -> monotonic time until which its credentials here count as found."""

    def known(self, image: Reference) -> bool:
        """Return whether this machine has credentials for an image.

        Raises:
            RegistryFault: The credentials of this machine cannot be read.
        """
        fresh = time.monotonic() < self._signed_in.get(image.name, 0.0)
        # After a refusal, the user may have signed out, so that the Secret counts.
        if fresh and not self.registries.refused(image):
            return True
        if credentials.find(image) is None:
            return False
        self._signed_in[image.name] = time.monotonic() + _FRESH
        return True

    async def read(self, build_cluster: BuildCluster) -> None:
        """Read the Secret.

        Raises:
            SpecError: The Secret holds no registry passwords.
            ClusterFault: There is no such Secret, or the user may not read it.
        """
        raw = (await build_cluster.secret(self.name)).get(DOCKER_KEY, b"")
        try:
            found = json.loads(raw)
            if not isinstance(found, dict):
                raise ValueError
        except (ValueError, RecursionError):
            raise SpecError(
                f"the Secret {self.name} holds no registry passwords: it has no readable "
                f"{DOCKER_KEY}.",
                "`kubectl create secret docker-registry` creates a suitable Secret.",
                directive="pushSecret",
            ) from None
        if self._config != found:
            self._config = found
            self.registries.forget()

    def _find(self, image: Reference) -> Credentials | None:
        if found := credentials.find(image):
            return replace(found, instead_of=self.name)
        return credentials.of(self._config, image, f"the Secret {self.name}")


class Account:
    """Registry credentials of one cell.

    Args:
        shared: The part that cells with the same Secret share.
        build_cluster: Gives access to the Secret; None if there is no cluster.
    """

    def __init__(self, shared: Accounts, build_cluster: BuildCluster | None) -> None:
        self.registries = shared.registries
        self._shared, self._build_cluster = shared, build_cluster
        self._asked = not shared.name
        self._asking = asyncio.Lock()

    async def ensure_credentials(self, image: Reference) -> None:
        """Read the Secret if this machine has no credentials for an image; once per cell.

        A user who has signed in on this machine needs no right to read Secrets.

        Raises:
            RegistryFault: The credentials of this machine cannot be read.
            SpecError: The Secret holds no registry passwords.
            ClusterFault: There is no such Secret, or the user may not read it.
        """
        if self._build_cluster is None:
            return
        async with self._asking:  # several replicas may ask at the same time
            if self._asked or await asyncio.to_thread(self._shared.known, image):
                return
            await self._shared.read(self._build_cluster)
            self._asked = True
