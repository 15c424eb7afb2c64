"""Harm to the parts of the cluster that run as pods: CoreDNS and the training operator."""

from __future__ import annotations

import signal
from typing import Any

from tests.cluster import addons
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.waiting import until

_CTR = ("ctr", "--address", "/control/containerd.sock", "--namespace", "k8s.io")


def send(cluster: Cluster, container: str, number: signal.Signals) -> None:
    """Send a signal to the first process of a container, which may be one that it cannot catch."""
    # containerd knows the process; it says nothing when the container has none.
    cluster.node.run([*_CTR, "task", "kill", "--signal", number.name, container])


class PodPart:
    """A part that is a Deployment with one pod.

    Args:
        cluster: where.
        name: of the Deployment: `coredns` or `training-operator`.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        namespaces = {known: namespace for namespace, known in addons.DEPLOYMENTS}
        if name not in namespaces:
            raise ClusterError(
                f"no part that runs as pods is named {name}", f"there are {', '.join(namespaces)}"
            )
        self.name, self._cluster, self._namespace = name, cluster, namespaces[name]

    def kill(self) -> None:
        """Kill its process (SIGKILL) and wait until that is gone; the kubelet starts it again.

        At once the first time; killed again within ten minutes, after 10 s, then 20 s, and so on.
        `restart` makes a fresh pod, for which that starts anew.
        """
        killed = self.container()
        self._signal(signal.SIGKILL)
        until(lambda: self.container() != killed, f"{self.name} to end", 30)

    def freeze(self) -> None:
        """Let it stand still: connections stay, nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on that stood still."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Take its pod away (no replicas), and wait until it has gone."""
        self._scale(0)
        until(lambda: not self.pods(), f"{self.name} to stop", 60)

    def start(self) -> None:
        """Bring its pod back, and wait until it does its work."""
        self._scale(1)
        self.wait()

    def restart(self) -> None:
        """Put a fresh pod in the place of whatever is there, and wait until it does its work."""
        self._scale(0)
        for pod in self.pods():  # by force: one that stands still does not end by itself
            name = pod["metadata"]["name"]
            self._cluster.api.delete(self._namespace, f"pod/{name}", now=True)
        until(lambda: not self.pods(), f"{self.name} to stop", 60)
        self.start()

    def wait(self) -> None:
        """Wait until names resolve and the operator's webhooks answer."""
        addons.wait(self._cluster.kubectl)

    def pods(self) -> list[dict[str, Any]]:
        """Return its pods, those that are ending too."""
        deployment = self._cluster.api.get(self._namespace, f"deployment/{self.name}")
        labels = deployment["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = self._cluster.api.get(self._namespace, "pods", "-l", selector)
        pods: list[dict[str, Any]] = found["items"]
        return pods

    def container(self) -> str | None:
        """Return the identifier of its container that runs, or None if none does."""
        for pod in self.pods():
            for status in pod["status"].get("containerStatuses", ()):
                if "running" in status["state"]:
                    return str(status["containerID"]).rpartition("/")[2]
        return None

    def _signal(self, number: signal.Signals) -> None:
        if (container := self.container()) is None:
            raise ClusterError(f"{self.name} does not run")
        send(self._cluster, container, number)

    def _scale(self, replicas: int) -> None:
        change = {"spec": {"replicas": replicas}}
        self._cluster.api.patch(self._namespace, f"deployment/{self.name}", change)
