"""What Kueue answers for one queue: why its jobs wait, and their places in line."""

from __future__ import annotations

from collections.abc import Callable

from tests.helpers.api_store import Object, Refusal

GROUP = "kueue.x-k8s.io"
PLACES = "visibility.kueue.x-k8s.io"
LABEL = f"{GROUP}/queue-name"
Places = Callable[[], list[str]]
"""Returns the uids of the jobs that wait, in their order."""


def unavailable() -> list[str]:
    """Answer as the API server does while nobody is behind its API."""
    raise Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def forbidden() -> list[str]:
    """Answer as to a user who may not read places."""
    raise Refusal(403, "Forbidden", "localqueues/pendingworkloads is forbidden")


class Queue:
    """A queue that is full until a test admits its jobs.

    Args:
        places: Its order; None: the administrator has left out the API of places.
        why: The reason of a wait.
    """

    def __init__(self, places: Places | None, why: str = "no room") -> None:
        self.places, self.why = places, why
        self.asked = 0
        """How often somebody asked for places."""

    def takes(self, job: Object) -> bool:
        """Return whether a job is one of the queue's, which Kueue suspends."""
        return bool((job["metadata"].get("labels") or {}).get(LABEL))

    def answer(self, path: str) -> Object:
        """Answer a GET; raises `Refusal` for what Kueue does not serve."""
        group, *rest = path.strip("/").split("/")[1:]
        if not rest and (group == GROUP or self.places):
            one = {"groupVersion": f"{group}/v1beta2", "version": "v1beta2"}
            return {"kind": "APIGroup", "name": group, "versions": [one], "preferredVersion": one}
        kind = rest[3] if len(rest) > 3 else ""
        if group == GROUP and kind == "localqueues":
            return {"kind": "LocalQueue", "metadata": {"name": rest[4]}}
        if group == GROUP and kind == "workloads":
            one = {"type": "QuotaReserved", "status": "False", "message": self.why}
            return {"items": [{"metadata": {}, "status": {"conditions": [one]}}]}
        if group == PLACES and rest[5:] == ["pendingworkloads"] and self.places:
            self.asked += 1
            items = [
                {
                    "metadata": {"name": f"tfjob-{uid}", "ownerReferences": [{"uid": uid}]},
                    "localQueueName": rest[4],
                    "positionInLocalQueue": number,
                    "positionInClusterQueue": number,
                }
                for number, uid in enumerate(self.places())
            ]
            return {"kind": "PendingWorkloadsSummary", "items": items}
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
