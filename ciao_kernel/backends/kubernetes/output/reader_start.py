"""Waits until the pod that reads a claim runs: says why it does not, and ends a wait in vain."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ciao_kernel import log
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.states import event_texts, status
from ciao_kernel.errors import BackendError
from ciao_kernel.kube.client import Object
from ciao_kernel.visible_text import short, visible

_log = logging.getLogger(__name__)

_WORDS = 200
_ASK_EVERY = 2.0
"""Seconds between two looks at the pod's events."""
_GONE = re.compile(r'persistentvolumeclaim "[^"]*" (?:not found|is being deleted)', re.IGNORECASE)
"""What the scheduler says of a pod that no node can ever take (Kubernetes, volume_binding)."""


class Pods(Protocol):
    """What is needed of an API server; :class:`ciao_kernel.kube.client.Client` has it."""

    async def find(self, path: str) -> Object | None:
        """Return an object; None if there is none."""

    async def get(self, path: str, **query: str) -> Object:
        """Return an object or a list."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the start of a pod may take, in seconds."""

    start: float = 300.0
    told: float = 15.0
    """Until the reason of the wait is told."""
    hopeless: float = 30.0
    """For an image that cannot be pulled: a registry may come back."""
    again: float = 60.0
    """Until a pod is made again after one that did not start: a node may have room by then."""
    look: float = 0.3
    """Between two looks."""


async def wait(
    pods: Pods, path: str, made: Object, patience: Patience, tell: Callable[[str], None]
) -> Object:
    """Return the pod when it runs.

    Args:
        pods: The API server.
        path: The pod's path.
        made: The pod, as the server returned it at its creation.
        patience: How long it may take.
        tell: Receives a sentence if it takes long.

    Raises:
        Refused, ClusterFault: From the client.
        BackendError: It does not start, or never can.
    """
    since = time.monotonic()
    now: Any = made
    why, asked, stuck, told = "", 0.0, 0.0, False
    while now is not None and time.monotonic() - since < patience.start:
        phase = get(now, "status", "phase")
        if phase == "Running":
            return made
        reason, words = status.waiting_reason(now)
        if phase in ("Failed", "Succeeded") or _GONE.search(words):
            why = words or reason
            break
        stuck = (stuck or time.monotonic()) if reason in status.HOPELESS else 0.0
        if stuck and time.monotonic() - stuck >= patience.hopeless:
            break
        if time.monotonic() - since >= patience.told:
            if not words and time.monotonic() - asked >= _ASK_EVERY:
                asked = time.monotonic()
                why = await _event(pods, path, made) or why
            if not told and (words or why):
                told = True
                tell(f"the pod that reads the claim waits: {_clean(words or why)}.")
        await asyncio.sleep(patience.look)
        now = await pods.find(path)
    raise BackendError(f"the pod that reads the claim did not start: {_why(now, why)}.")


async def _event(pods: Pods, path: str, made: Object) -> str:
    """Return the newest warning about the pod, such as that its claim cannot be mounted."""
    events = f"{path.rpartition('/pods/')[0]}/events"
    uid = str(get(made, "metadata", "uid"))
    with log.ignored(_log, "reading the events of the pod that reads a claim", BackendError):
        found = await pods.get(events, fieldSelector=f"involvedObject.uid={uid}")
        last = event_texts.newest(many(found, "items"), of_job=False)
        return event_texts.sentence(last)
    return ""


def _why(pod: Any, why: str) -> str:
    if pod is None:
        return "it was deleted"
    reason, words = status.waiting_reason(pod)
    return _clean(words or why or reason or "its node has not started it")


def _clean(words: str) -> str:
    return visible(short(words, _WORDS)).rstrip(".")
