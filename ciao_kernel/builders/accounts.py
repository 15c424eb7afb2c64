"""As whom a cell asks registries: who has signed in on this machine, else the Secret it names."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ciao_kernel.builders.oci import credentials
from ciao_kernel.builders.oci.credentials import Credentials
from ciao_kernel.builders.oci.reference import Reference
from ciao_kernel.builders.oci.registries import Registries
from ciao_kernel.errors import SpecError
from ciao_kernel.plugins import Workshop

DOCKER_KEY = ".dockerconfigjson"
"""Under which a Secret of registries' passwords has them."""
_FRESH = 300.0
"""Seconds for which who has signed in counts as signed in: a helper may take a second."""


class Accounts:
    """Cells that name the same Secret of the same namespace; no other cell asks with it.

    Args:
        plain: Hosts that speak http.
        authority: File of the certificate that signs those of private registries.
        name: Of the Secret; "" is none.
    """

    def __init__(self, plain: Iterable[str], authority: Path | None, name: str) -> None:
        self.name = name
        self.registries = Registries(plain, authority, self._find)
        self._config: dict[str, Any] = {}
        """What the Secret held when it was read last, as docker's ``config.json``."""
        self._signed_in: dict[str, float] = {}
        """Until when this machine knows who may ask for the images of a name."""

    def known(self, image: Reference) -> bool:
        """Whether somebody has signed in on this machine who may ask for an image.

        Raises:
            RegistryFault: The credentials of this machine cannot be read.
        """
        if time.monotonic() < self._signed_in.get(image.name, 0.0):
            return True
        if credentials.find(image) is None:
            return False
        self._signed_in[image.name] = time.monotonic() + _FRESH
        return True

    async def read(self, workshop: Workshop) -> None:
        """Read the Secret.

        Raises:
            SpecError: It holds no passwords of registries.
            ClusterFault: There is none, or the user may not read it.
        """
        raw = (await workshop.secret(self.name)).get(DOCKER_KEY, b"")
        try:
            found = json.loads(raw)
            if not isinstance(found, dict):
                raise ValueError
        except (ValueError, RecursionError):
            raise SpecError(
                f"the Secret {self.name} is not one of registries' passwords: it has no "
                f"{DOCKER_KEY} that could be read.",
                "`kubectl create secret docker-registry` makes one.",
                directive="pushSecret",
            ) from None
        if self._config != found:
            self._config = found
            self.registries.forget()

    def _find(self, image: Reference) -> Credentials | None:
        of_secret = f"the Secret {self.name}"
        return credentials.find(image) or credentials.of(self._config, image, of_secret)


class Account:
    """As whom one cell asks.

    Args:
        shared: With other cells.
        workshop: Where the Secret is; None where there is none.
    """

    def __init__(self, shared: Accounts, workshop: Workshop | None) -> None:
        self.registries = shared.registries
        self._shared, self._workshop = shared, workshop
        self._asked = not shared.name

    async def know(self, image: Reference) -> None:
        """Read the Secret if nobody has signed in who may ask for an image; once for a cell.

        Whoever has signed in on this machine needs no right to read Secrets.

        Raises:
            RegistryFault: The credentials of this machine cannot be read.
            SpecError: The Secret holds no passwords of registries.
            ClusterFault: There is no such Secret, or the user may not read it.
        """
        if self._workshop is None or self._asked:
            return
        if await asyncio.to_thread(self._shared.known, image):
            return
        self._asked = True
        await self._shared.read(self._workshop)
