"""API server and namespace of a job, with one open client for each context."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import Api
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.background import SharedWork, cancel_all
from ciao_kernel.config import Settings
from ciao_kernel.errors import Refused
from ciao_kernel.kube import access
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client
from ciao_kernel.model import ClusterSpec, Manifest
from ciao_kernel.model.queries import Where


@dataclass(frozen=True, slots=True)
class Target:
    """One namespace of one cluster."""

    client: Client
    namespace: str

    @property
    def context(self) -> str:
        """The kubeconfig's context, even if the user named none; "" in a pod."""
        return self.client.access.context

    async def resources(self) -> list[tuple[Api, str]]:
        """Return all kinds of jobs on the cluster, each with its API; Indexed Jobs come last."""
        served, others = await asyncio.gather(
            self.kinds(apis.OPERATOR_V1.path), self.kinds(apis.TRAINER.path)
        )
        mpi: tuple[str, ...] = ()
        if "mpijobs" not in served and "mpijobs" in await self.kinds(apis.MPI_OPERATOR.path):
            mpi = apis.MPI_OPERATOR.plurals
        return [
            *((apis.OPERATOR_V1, plural) for plural in served),
            *((apis.MPI_OPERATOR, plural) for plural in mpi),
            *((apis.TRAINER, plural) for plural in apis.TRAINER.plurals if plural in others),
            *((apis.JOB, plural) for plural in apis.JOB.plurals),
        ]

    async def kinds(self, path: str) -> list[str]:
        """Return the kinds that are served at a path, as written in paths: ``tfjobs``."""
        try:
            served = await self.client.known(path)
        except Refused as error:
            if error.code != 404:
                raise
            return []
        names = [one.get("name") for one in many(served, "resources")]
        return [name for name in names if isinstance(name, str) and "/" not in name]

    async def find(
        self, name: str, resource: str = ""
    ) -> AsyncGenerator[tuple[str, Manifest], None]:
        """Yield path and object of the jobs of a name: pods and services of all kinds share names.

        All kinds are asked at once: one after the other, a distant server would take a second.

        Args:
            name: Name of the jobs.
            resource: The kind to search; "" means all kinds that this user may see.

        Raises:
            Refused, ClusterFault: From the client.
        """
        closed: Refused | None = None
        seen = False
        known = [(apis.of_resource(resource), resource)] if resource else await self.resources()
        paths = [f"{api.at(self.namespace, plural)}/{name}" for api, plural in known]
        asked = [asyncio.ensure_future(self.client.find(path)) for path in paths]
        try:
            for path, answer in zip(paths, asked, strict=True):
                try:
                    item = await answer
                except Refused as error:
                    if error.code == 403 and not resource:
                        closed = closed or error
                        continue
                    raise
                seen = True
                if item:
                    yield path, item
        finally:
            await cancel_all(asked)
        if closed is not None and not seen:  # this user may see no kind at all
            raise Refused(
                closed.message,
                "Ask for the Role in deploy/rbac/, or name another namespace: --namespace NAME.",
                code=closed.code,
                reason=closed.reason,
            )


class Targets:
    """Opens clients when they are needed, and keeps them for the next cell.

    Args:
        settings: Context, namespace and timeouts.
        load: Reads credentials; tests pass their own function.
    """

    def __init__(
        self, settings: Settings, load: Callable[[str], Awaitable[Access]] = access.load
    ) -> None:
        self._settings = settings
        self._load = load
        # Connections belong to the loop that opened them: cells on other threads have their own.
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = WeakKeyDictionary()

    async def of(self, spec: ClusterSpec | None = None) -> Target:
        """Return the target of a cell's job; without a cell, the target of the settings.

        Simultaneous calls get one client. A caller with little time leaves its sign-in to the
        next one.

        Raises:
            ClusterFault: There are no credentials, or they cannot be read.
        """
        here = self._loops.setdefault(asyncio.get_running_loop(), _OfLoop())
        context = (spec.context if spec else None) or self._settings.context
        if context not in here.clients:
            opening = here.opening.setdefault(context, SharedWork())
            await opening.run(lambda: self._open(here, context))
        client = here.clients[context]
        return Target(client, self._namespace(spec, client.access))

    async def _open(self, here: _OfLoop, context: str) -> None:
        async with here.loading:  # of several programs that ask in the terminal, one at a time
            found = await self._load(context)
        here.clients[context] = Client(found, self._settings.request_patience, self._load)

    async def at(self, where: Where) -> Target:
        """Return the target in which to search for jobs."""
        spec = ClusterSpec(context=where.context or None, namespace=where.namespace or None)
        return await self.of(spec)

    def options(self, context: str, namespace: str) -> str:
        """Return the options for a command to search a namespace; "" if it needs none.

        Args:
            context: The context as the user named it; "" for the settings' context.
            namespace: Namespace of the job.
        """
        words = [] if context in ("", self._settings.context) else ["--context", context]
        here = self._loops.get(asyncio.get_running_loop())
        client = here.clients.get(context or self._settings.context) if here else None
        if client is None or namespace != self._namespace(None, client.access):
            words = ["--namespace", namespace, *words]
        return shlex.join(words)

    def _namespace(self, spec: ClusterSpec | None, found: Access) -> str:
        named = (spec.namespace if spec else None) or self._settings.namespace
        of_context = found.namespace if found.context else ""
        of_gateway = os.environ.get("KERNEL_NAMESPACE", "")  # set by Enterprise Gateway
        return named or of_context or of_gateway or found.namespace or "default"

    async def close(self) -> None:
        """End sign-ins and close the clients of this event loop; other loops close their own."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is None:
            return
        await asyncio.gather(*(opening.close() for opening in here.opening.values()))
        for client in here.clients.values():
            await client.close()


class _OfLoop:
    """Open clients of one event loop."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.opening: dict[str, SharedWork[None]] = {}
        self.loading = asyncio.Lock()
