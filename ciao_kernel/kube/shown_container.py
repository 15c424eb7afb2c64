"""A container as the status of its pod shows it, and waiting for what it will show."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ciao_kernel.kube import instances
from ciao_kernel.kube.instances import ContainerInstance
from ciao_kernel.kube.object_shape import Object, part


class PodView(Protocol):
    """The current state of the pod."""

    def pod(self) -> Object | None:
        """Return the latest object, or None once it is gone."""

    async def changed(self, within: float) -> None:
        """Wait for the next change, at most the given seconds."""


class ShownContainer:
    """One container of the pod that the view shows first.

    Args:
        view: View of the pod, which has already received the pod's status.
        name: Name of the container.
    """

    def __init__(self, view: PodView, name: str) -> None:
        self._view = view
        self._name = name
        self._uid = ""

    def pod(self) -> Object | None:
        """Return the pod; None if it is gone or was replaced by another pod of the same name."""
        pod = self._view.pod()
        if pod is None:
            return None
        uid = str(pod["metadata"].get("uid") or "")
        self._uid = self._uid or uid
        return pod if uid == self._uid else None

    def is_replaced_by(self, pod: Object) -> bool:
        """Return whether a pod of the same name is another one than the view shows."""
        return str(part(pod, "metadata").get("uid") or "") != self._uid

    def seen(self, pod: Object) -> ContainerInstance | None:
        """Return the container's newest instance, or None if it was not started yet."""
        return instances.seen(pod, self._name)

    def forgotten(self, pod: Object, id_: str, number: int) -> ContainerInstance | None:
        """Return a known instance as ended if its pod has lost it (:func:`.instances.forgotten`).

        Args:
            pod: The pod.
            id_: Container ID of the instance.
            number: Number of its earlier starts.
        """
        gone = instances.forgotten(pod, self._name)
        return ContainerInstance(id_, number, True, "") if gone else None

    def is_over(self, pod: Object) -> bool:
        """Return whether the container cannot start again."""
        return instances.over(pod, self._name)

    async def changed(self, within: float) -> None:
        """Wait for the next change, at most the given seconds."""
        await self._view.changed(within=within)

    async def shows(self, wanted: Callable[[ContainerInstance], bool], within: float) -> None:
        """Wait until the status shows the wanted, or nothing; at most the given seconds."""
        until = time.monotonic() + within
        while (left := until - time.monotonic()) > 0:
            pod = self.pod()
            now = pod and self.seen(pod)
            if not now or wanted(now):
                return
            await self.changed(within=left)
