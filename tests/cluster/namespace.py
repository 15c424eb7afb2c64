"""One test's namespace: what it creates goes with it, and what went wrong can be seen."""

from __future__ import annotations

import re
import secrets
from typing import Any, Protocol

from tests.cluster.api import Api
from tests.cluster.errors import ClusterError
from tests.cluster.waiting import until


class Kubernetes(Protocol):
    """A cluster that tests use, whoever raised it."""

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl as an administrator and return what it printed."""

    def kubectl_argv(self, *arguments: str) -> list[str]:
        """Return the command line of kubectl."""

    @property
    def api(self) -> Api:
        """The API as an administrator, without a process for each question."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment for programs that use the cluster."""

    def image(self, name: str) -> str:
        """Return the full name of an image of tests/cluster/recipes.py, by its first word."""

    def tails(self) -> dict[str, str]:
        """Return the end of each part's log, by the part's name."""


class Namespace:
    """A namespace of its own.

    Args:
        cluster: where.
        test: the test's name, which the namespace's begins with.
        labels: of the namespace, such as those of Pod Security.
    """

    def __init__(
        self, cluster: Kubernetes, test: str, labels: dict[str, str] | None = None
    ) -> None:
        words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))
        self.name = f"{words[:40].strip('-')}-{secrets.token_hex(3)}"
        self.cluster = cluster
        self._labels = labels or {}

    def create(self) -> None:
        """Create it, and wait until pods can be created in it."""
        meta = {"name": self.name, "labels": {"ciao-test": "true", **self._labels}}
        self.cluster.api.create("", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        # Its default service account comes a moment later, and pods are refused before. After an
        # outage of the API server its controller asks again up to a minute later (client-go).
        until(lambda: self.find("serviceaccount/default"), "the service account", 90)

    def delete(self) -> None:
        """Delete it and all that is in it; does not wait for the end."""
        self.cluster.api.delete("", f"namespace/{self.name}")

    def label(self, labels: dict[str, str]) -> None:
        """Give it further labels, such as those of Pod Security."""
        change = {"metadata": {"labels": labels}}
        self.cluster.api.patch("", f"namespace/{self.name}", change)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl in this namespace and return what it printed."""
        return self.cluster.kubectl("-n", self.name, *arguments, text=text)

    def touch(self, pod: str, file: str) -> None:
        """Make a file in a pod, by which its program may end.

        The end of a container kills what still runs in it (137): then the file was seen.

        Raises:
            ClusterError: it cannot be made.
        """
        try:
            self.kubectl("exec", pod, "--", "touch", file)
        except ClusterError as error:
            if "ended with 137" not in str(error):
                raise

    def create_objects(self, *manifests: dict[str, Any]) -> None:
        """Create objects in it, one after another; unknown fields are errors.

        Raises:
            ClusterError: the server's words about the first that it refused.
        """
        for manifest in manifests:
            self.cluster.api.create(self.name, manifest)

    def get(self, *what: str) -> Any:
        """Return what `kubectl get` finds, as values.

        Raises:
            ClusterError: the server's words.
        """
        return self.cluster.api.get(self.name, *what)

    def find(self, *what: str) -> Any:
        """Return what `kubectl get` finds, or None if there is no such object."""
        try:
            return self.get(*what)
        except ClusterError as error:
            if "NotFound" in str(error):
                return None
            raise

    def condition(self, job: str, kind: str) -> bool:
        """Tell whether a job has a condition, such as `Succeeded`."""
        return kind in self._conditions(job)

    def _conditions(self, job: str) -> set[str]:
        conditions = self.get(job).get("status", {}).get("conditions") or []
        return {str(c["type"]) for c in conditions if c["status"] == "True"}

    def wait_for_job(self, job: str, kind: str = "Succeeded", seconds: float = 120) -> None:
        """Wait until a job (`tfjob/NAME`) has a condition; a failed job is not waited for."""
        other = "Failed" if kind == "Succeeded" else "Succeeded"

        def over() -> bool:
            conditions = self._conditions(job)
            if other in conditions:
                raise ClusterError(f"{job} is {other}:\n{self.log_text()}")
            return kind in conditions

        until(over, f"{job} to be {kind}", seconds)

    def wait_for_pod(self, pod: str, phase: str, seconds: float = 120) -> None:
        """Wait until a pod is in a phase, such as `Running`."""
        until(
            lambda: (found := self.find(f"pod/{pod}")) and found["status"].get("phase") == phase,
            f"pod {pod} to be {phase}",
            seconds,
        )

    def log_text(self) -> str:
        """Return all logs of all pods, each line after its pod's name."""
        text = []
        for pod in self.get("pods")["items"]:
            name = pod["metadata"]["name"]
            try:
                log = self.cluster.api.log(pod, 100)
            except ClusterError as error:  # it did not start yet
                log = str(error).splitlines()[-1]
            text += [f"[{name}] {line}" for line in log.splitlines()]
        return "\n".join(text)

    def evidence(self) -> dict[str, str]:
        """Return what tells why a test failed, by title. Never raises: the cluster may be gone."""
        asked = {
            "pods": lambda: self.kubectl("get", "all,configmaps,secrets", "-o", "wide"),
            "events": lambda: self.kubectl("get", "events", "--sort-by=.lastTimestamp"),
            "logs": self.log_text,
            "parts": lambda: "\n".join(f"{n}:\n{t}" for n, t in self.cluster.tails().items()),
        }
        found = {}
        for title, ask in asked.items():
            try:
                found[f"{title} of namespace {self.name}"] = ask()
            except ClusterError as error:
                found[title] = f"not to be had: {error}"
        return found
