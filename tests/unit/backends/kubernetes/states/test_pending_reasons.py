"""Why replicas wait: images that their nodes pull, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.backends.kubernetes.states.pending_reasons import PendingReasons, pulling
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status

NOW = 1_800_000_000.0
WORKER = Replica("worker", 0)
JOB = Job("mnist", "kubernetes", "tensorflow", (WORKER,), 0.0, "team")


def event(reason: str, ago: float, kind: str = "Normal") -> Any:
    words = {"Pulling": 'Pulling image "host/tf:2"', "Failed": "Failed to pull image: no such tag"}
    said = words.get(reason, f"{reason}.")
    return {
        "reason": reason, "type": kind, "message": said, "lastTimestamp": status.text(NOW - ago)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([], ""),
        ([event("Pulling", 7)], 'Pulling image "host/tf:2", 7s'),
        ([event("Pulling", 97)], 'Pulling image "host/tf:2", 1m 30s'),
        ([event("Pulling", -3)], 'Pulling image "host/tf:2", 0s'),
        ([event("Pulling", 7), event("Pulled", 2)], ""),
        ([event("Pulled", 2), event("Pulling", 7)], ""),
        ([event("Pulling", 7), event("Pulled", 7)], ""),
        ([event("Scheduled", 9), event("Pulling", 9)], 'Pulling image "host/tf:2", 9s'),
        ([{"reason": "Pulling", "lastTimestamp": status.text(NOW)}], ""),
    ],
)
def test_only_the_newest_event_is_a_pull(events: list[Any], text: str) -> None:
    assert pulling(events, NOW) == text


class Server:
    def __init__(self, *events: Any) -> None:
        self.events = events

    async def get(self, path: str, **query: str) -> Any:
        return {"items": list(self.events)}


def reason(*events: Any, known: str = "") -> str:
    """Return the reason of a pending replica whose pod has these events."""

    async def main() -> str:
        new: list[None] = []
        reasons = PendingReasons(
            Server(*events),  # type: ignore[arg-type]
            JOB, 60.0, lambda: new.append(None), lambda: NOW,
        )  # fmt: skip
        now = Status(State.PENDING, (ReplicaStatus(WORKER, reason=known),))
        pod = {"metadata": {"uid": "1", "name": "mnist-worker-0"}, "spec": {}, "status": {}}
        reasons.explain(now, {WORKER: pod}, "job")
        assert reasons._asking is not None
        await reasons._asking
        assert len(new) == 1
        return reasons.explain(now, {WORKER: pod}, "job").replicas[0].reason

    return asyncio.run(main())


def test_a_replica_shows_the_pull_unless_there_is_a_better_reason() -> None:
    assert reason(event("Pulling", 42)) == 'Pulling image "host/tf:2", 42s'
    assert reason(event("Pulling", 42), known="its init container unpack runs") == (
        "its init container unpack runs"
    )
    # While the node tries again, the reason stays that of its last try.
    known = 'ImagePullBackOff: Back-off pulling image "host/tf:2"'
    assert reason(event("Failed", 9, "Warning"), event("Pulling", 2), known=known) == known
    said = reason(event("Pulling", 9), event("Failed", 2, "Warning"))
    assert said == "Failed: Failed to pull image: no such tag"
