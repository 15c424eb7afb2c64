"""Events of the cluster as texts: the newest, its words, its time, and an image that is pulled."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.kube.client import Object
from ciao_kernel.model.times import span


def newest(events: list[Object], *, of_job: bool) -> Object:
    """Return the newest warning; ``{}`` if there is none, or if a pod had a better event since."""
    said = [event for event in events if event.get("message")]
    if of_job:  # one pod may be created after another was refused
        said = [event for event in said if event.get("type") == "Warning"]
    last = max(said, key=event_time, default={})
    return last if last.get("type") == "Warning" else {}


def sentence(event: Object) -> str:
    """Return the text of an event; "" if it has none."""
    words = " ".join(str(event.get("message", "")).split())
    return f"{event.get('reason', '')}: {words}" if words else ""


def pulling(events: list[Object], now: float | None = None) -> str:
    """Return the image that a node pulls, and for how long; "" if that is not the newest event.

    Kubernetes reports no bytes of a pull.

    Args:
        events: Events of a pod.
        now: The cluster's time, in seconds since the epoch; None leaves the time out.
    """
    # Of the events of one second, the later one in the list is newer.
    last = max(enumerate(events), key=lambda one: (event_time(one[1]), one[0]), default=(0, {}))[1]
    words = " ".join(str(last.get("message", "")).split())
    if last.get("reason") != "Pulling" or not words:
        return ""
    if now is None:
        return words
    seconds = max(0.0, now - status.stamp(event_time(last)))
    # Each new text draws the table again.
    return f"{words}, {span(seconds if seconds < 60 else seconds // 10 * 10)}"


def event_time(event: Object) -> str:
    """Return the time of an event as text; texts compare like the times."""
    for key in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if isinstance(event.get(key), str):
            return str(event[key])
    return ""
