"""What metrics.k8s.io answers, as metrics-server does: the resources that running pods use."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.helpers.api_store import Object, Refusal

GROUP = "metrics.k8s.io"
Metrics = Callable[[str], tuple[int, int] | None]
"""Returns the nanocores and the KiB that a pod uses, None if it was not measured yet."""


def unavailable(pod: str) -> None:
    """Answer as the API server does while no metrics server is behind its API."""
    raise Refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def listed(pods: Iterable[Object], metrics: Metrics, now: str) -> Object:
    """Return the metrics of some pods as a list; one that was not measured yet is missing.

    Args:
        pods: The pods.
        metrics: What they use.
        now: The time, as it stands in objects.
    """
    items = []
    for pod in pods:
        meta = pod["metadata"]
        if pod["status"].get("phase") != "Running" or (used := metrics(meta["name"])) is None:
            continue
        cpu, memory = used
        container = pod["spec"]["containers"][0]["name"]
        usage = {"cpu": f"{cpu}n", "memory": f"{memory}Ki"}
        own = {name: meta[name] for name in ("name", "namespace", "labels") if name in meta}
        items.append(
            {
                "metadata": {**own, "creationTimestamp": now},
                "timestamp": now,
                "window": "15.07s",
                "containers": [{"name": container, "usage": usage}],
            }
        )
    kind = {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/v1beta1"}
    return {**kind, "metadata": {}, "items": items}
