"""One pod that is not a replica: followed until its end, its lines shown as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import Any

from ciao_kernel.backends.kubernetes.cluster.outages import Outages
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.backends.kubernetes.states.event_texts import newest, pulling, sentence
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Object
from ciao_kernel.kube.logs import ContainerLog, Gap
from ciao_kernel.kube.watch import WatchedList
from ciao_kernel.model import Notice
from ciao_kernel.plugins import Emit, PodResult

_FIRST, _LAST = 20, 200
"""First and last lines of a log to keep."""
_TICK = 0.2
_PHASE_PATIENCE = 2.0
"""Seconds after the container's end in which the pod's phase and reason may follow."""
_LATE = 10.0
"""Seconds to wait for a missing volume: ciao creates its own after the pod."""
_RETRIED = 5.0
"""Seconds over which the kubelet repeats a warning that is not temporary."""
_QUIET = 3.0
"""Seconds of waiting without an explanation."""
_ASK_EVERY, _ASK_FOR = 2.0, 2.0
_VOLUMES = "FailedMount"
_TERMINATION_CODES = (2, 137, 143)
"""Exit codes of a container that was told to end: the executor's own, SIGKILL's, SIGTERM's."""


class SinglePod:
    """One running pod: its state, and its lines as they arrive.

    Args:
        target: Cluster and namespace of the pod.
        settings: Timeouts.
        pod: The pod as it was created; a webhook may have added containers to it.
        container: Name of the container whose lines and end count.
        emit: Shows its lines.
        phase_patience: Seconds after the container's end in which the pod's phase may follow.
    """

    def __init__(
        self,
        target: Target,
        settings: Settings,
        pod: Object,
        container: str,
        emit: Emit,
        phase_patience: float = _PHASE_PATIENCE,
    ) -> None:
        self._container, self._phase_patience = container, phase_patience
        self._target, self._settings, self._emit = target, settings, emit
        self._name, self._uid = str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])
        self._changed = asyncio.Event()
        self._pods = WatchedList(
            target.client,
            f"/api/v1/namespaces/{target.namespace}/pods",
            {"fieldSelector": f"metadata.name={self._name}"},
            self._changed,
        )
        self._pod: Object | None = pod
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST)
        self._began, self._stuck = time.monotonic(), 0.0
        self._outages = Outages(settings.follow_patience, self._lost)
        self._told = ""
        self._warning: Object = {}
        self._pull = ""
        self._may_ask, self._asked = True, 0.0

    def pod(self) -> Object | None:
        """Return the current pod, for the reader of its log."""
        if self._pods.listed:
            self._pod = self._pods.items.get(self._uid)
        return self._pod

    async def changed(self, within: float) -> None:
        """Wait for a change, for so many seconds at most."""
        # Not wait_for: before Python 3.12 it loses a cancellation that comes with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._changed.wait()
        self._changed.clear()

    async def end(self) -> PodResult:
        """Wait until the pod has ended and its lines are read.

        Raises:
            ClusterFault: The pod cannot start, or the API server does not answer.
        """
        watching = asyncio.ensure_future(self._pods.run())
        reading = asyncio.ensure_future(self._read())
        last, ended = self._pod, 0.0
        try:
            while True:
                if watching.done():
                    watching.result()
                pod = self.pod()
                last = pod or last
                phase = get(pod, "status", "phase")
                over = self._terminated(pod)
                if over:
                    ended = ended or time.monotonic()
                # The phase arrives a second later; the reason of a failure may arrive with it. It
                # does not arrive while an injected container runs.
                well = get(over, "exitCode") == 0
                late = over and time.monotonic() - ended >= self._phase_patience
                if pod is None or well or late or phase in ("Succeeded", "Failed"):
                    await asyncio.wait({reading}, timeout=self._settings.request_patience)
                    break
                if notice := self._outages.report((self._pods,)):
                    self._emit(notice)
                await self._look(pod)
                await asyncio.wait({watching}, timeout=_TICK)
        finally:
            for task in (watching, reading):
                task.cancel()
            await asyncio.gather(watching, reading, return_exceptions=True)
        return self._ended(last, there=self.pod() is not None)

    def _ended(self, pod: Object | None, *, there: bool) -> PodResult:
        over, lines = self._terminated(pod), (tuple(self._first), tuple(self._last))
        code = get(over, "exitCode")
        leaves = not there or get(pod, "metadata", "deletionTimestamp") is not None
        if code != 0 and leaves and (code is None or code in _TERMINATION_CODES):
            # This condition reports a drained node, or preemption by a more important pod.
            why = get(status.conditions(pod or {}).get("DisruptionTarget"), "message")
            return PodResult(None, str(why or "somebody deleted it"), "Deleted", *lines)
        # If the whole pod was ended, its status has the reason; the container's has only lines.
        ended = get(pod, "status") if get(pod, "status", "reason") else over
        said = str(get(ended, "reason") or "")
        return PodResult(
            code if isinstance(code, int) else None,
            str(get(ended, "message") or ""),
            "" if said in ("Completed", "Error") else said,
            *lines,
        )

    async def _read(self) -> None:
        log = ContainerLog(
            self._target.client,
            self._target.namespace,
            self._name,
            self._container,
            self,
            away=lambda: self._pods.away_since is not None,
        )
        async with contextlib.aclosing(log.read()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Gap):
                    self._emit(Notice(piece.text))
                    continue
                for raw in piece.data.decode(errors="replace").split("\n")[:-1]:
                    line = raw.rpartition("\r")[2] if not raw.endswith("\r") else raw[:-1]
                    self._keep(line)
                    if line.strip():
                        self._emit(Notice(f"[build] {line}"))

    def _keep(self, line: str) -> None:
        if len(self._first) < _FIRST:
            self._first.append(line)
        self._last.append(line)

    # --------------------------------------------------------------------------- waiting

    async def _look(self, pod: Object) -> None:
        """Report why the pod waits; give up if waiting does not help.

        Raises:
            ClusterFault: The pod will never start.
        """
        word, why = status.waiting_reason(pod)
        # An injected container may run although this one's image cannot be pulled.
        if get(self._state(pod), "running") is not None:
            return
        waited = time.monotonic() - self._began
        if waited < _QUIET:
            return
        await self._ask()
        said = sentence(self._warning)
        why = said if said and (not why or "Back-off" in why) else why or self._pull
        if why and why != self._told:
            self._told = why
            self._emit(Notice(f"the pod that builds the image waits: {why}"))
        missing = any(words in why for words in ("not found", "non-existent"))
        if why.startswith(_VOLUMES) and missing and waited > _LATE and self._lasts():
            raise self._hopeless(why)
        if word in status.HOPELESS:
            self._stuck = self._stuck or time.monotonic()
            if time.monotonic() - self._stuck >= self._settings.hopeless_wait:
                raise self._hopeless(why)

    def _lasts(self) -> bool:
        """Return whether the warning was repeated long after its first time.

        A ConfigMap may be missing for only a moment, and its warning may be the last event until
        a slow node has created the pod's network.
        """
        first, last = (self._warning.get(key) for key in ("firstTimestamp", "lastTimestamp"))
        return status.stamp(last) >= status.stamp(first) + _RETRIED

    def _hopeless(self, why: str) -> ClusterFault:
        return ClusterFault(
            f"the pod that builds the image cannot start: {why}",
            "`%ciao config kanikoImage=…` sets its image; %imagePullSecret=…, %pushSecret=… and "
            "%pipSecret=… name Secrets of the namespace.",
        )

    async def _ask(self) -> None:
        """Read the newest warning about the pod, if the user may read events."""
        if not self._may_ask or time.monotonic() - self._asked < _ASK_EVERY:
            return
        self._asked = time.monotonic()
        path = f"/api/v1/namespaces/{self._target.namespace}/events"
        whose = f"involvedObject.uid={self._uid}"
        try:
            async with asyncio.timeout(_ASK_FOR):
                found = await self._target.client.get(path, fieldSelector=whose)
        except Refused as error:
            self._may_ask = error.code != 403
        except (ClusterFault, TimeoutError):
            pass
        else:
            events = many(found, "items")
            self._warning, self._pull = newest(events, of_job=False), pulling(events)

    def _lost(self, away: float, watched: WatchedList) -> BackendError:
        """Return the error for an API server that is away for too long."""
        if watched.refusal:
            return watched.refusal
        return ClusterFault(
            f"the API server has not answered for {away:.0f} s ({watched.fault}) while the pod "
            f"{self._name} built the image.",
            "Try again when the server is back.",
        )

    def _state(self, pod: Object | None) -> Any:
        """Return the state of the container; None if there is no status of it yet."""
        found = many(pod, "status", "containerStatuses")
        return next(
            (get(one, "state") for one in found if one.get("name") == self._container), None
        )

    def _terminated(self, pod: Object | None) -> Any:
        """Return the end of the container; None if it has not ended."""
        return get(self._state(pod), "terminated")
