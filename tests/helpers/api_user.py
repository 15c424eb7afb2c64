"""A user of the cluster on the loopback: sessions whose jobs go there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Owner
from ciao_kernel.session.owner import current_user
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.helpers.api_server import ApiServer
from tests.helpers.jobs import Recorder

T = TypeVar("T")
OWNER = Owner(f"{current_user()} kernel 1")


class Here:
    """A user of a cluster; KUBECONFIG has to name it.

    Args:
        server: The cluster.
        folder: Of what the user keeps.
    """

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server = server
        self.settings = Settings(
            storage=folder / "storage",
            backend="kubernetes",
            images={"tensorflow": "image"},
            linger=5.0,
        )

    def do(self, work: Callable[[Session, KubernetesBackend], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            registry = Registry({})
            try:
                session = Session(registry, OWNER, self.settings)
                backend = session.backend("kubernetes")
                assert isinstance(backend, KubernetesBackend)
                async with asyncio.timeout(60):
                    return await work(session, backend)
            finally:
                await registry.close()

        return asyncio.run(main())


async def run(session: Session, text: str, display: Recorder, folder: Path) -> CiaoError | None:
    """Run a cell, and return the error that it ended with."""
    try:
        await session.run(text, display, folder)
    except CiaoError as error:
        return error
    return None
