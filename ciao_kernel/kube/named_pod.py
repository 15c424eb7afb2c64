"""The pod that has a name now, asked for beside its watch, which may be dead or still connected."""

from __future__ import annotations

import asyncio

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import responses
from ciao_kernel.kube.client import Client, Object
from ciao_kernel.kube.object_shape import objects
from ciao_kernel.kube.shown_container import ShownContainer

_PAUSE, _SIGNED_OUT = 0.5, 5.0
"""Seconds between two questions without an answer, and where each may run a sign-in program."""


class NamedPod:
    """Asks the API server for a pod; the reader of its log does so where its log tells too little.

    It lists by name, because users may list pods, and often not get them.

    Args:
        client: The API server.
        namespace: Namespace of the pod.
        name: Its name.
        shown: The pod as its watch shows it.
    """

    def __init__(self, client: Client, namespace: str, name: str, shown: ShownContainer) -> None:
        self._client, self._shown = client, shown
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._selector = f"metadata.name={name}"

    async def is_another(self) -> bool:
        """Return whether another pod has the name; False if nobody can tell.

        A pod that is still the same was the same when its log was asked for.
        """
        while True:
            is_shown = self._shown.pod() is not None
            try:
                found = await self._ask()
            except (ClusterFault, Refused) as error:
                signed_out = isinstance(error, Refused) and error.code == 401
                final = isinstance(error, Refused) and not (signed_out or responses.passes(error))
                if final or not is_shown:
                    return False
                await asyncio.sleep(_SIGNED_OUT if signed_out else _PAUSE)
            else:
                return any(self._shown.is_replaced_by(pod) for pod in objects(found.get("items")))

    async def is_401_of_node(self) -> bool:
        """Return whether a 401 for the log is the node's own: the API server has no objection.

        It passes that of a node on (an expired client certificate,
        github.com/kubernetes/kubernetes/issues/63128). Its own may come while the watch is still
        connected. Credentials that it refuses are renewed by the question.
        """
        try:
            await self._ask()
        except ClusterFault:
            return False
        except Refused as error:
            return error.code != 401
        return True

    async def _ask(self) -> Object:
        return await self._client.get(self._pods, fieldSelector=self._selector)
