"""Pods of the cluster on the loopback, and the programs that run in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from tests.helpers.api_store import Object
from tests.helpers.pod_log import PodLog

JOB = "training.kubeflow.org/job-name"
INDEXED_JOB = "ciao-kernel/job"
_INDEX = "batch.kubernetes.io/job-completion-index"


class Pod:
    """One pod, for the program that runs in it.

    Args:
        item: Its object, as it was created.
        clock: The node's, in seconds since the epoch.
    """

    def __init__(self, item: Object, clock: Callable[[], float]) -> None:
        labels = item["metadata"]["labels"]
        self.job: str = labels.get(JOB) or labels[INDEXED_JOB]
        self.name: str = item["metadata"]["name"]
        self.number = int(labels.get("training.kubeflow.org/replica-index") or labels[_INDEX])
        """Its index, in its role or in an Indexed Job."""
        self.log = PodLog()
        self.previous: PodLog | None = None
        """The log of its container before the last restart."""
        self.restarts = 0
        self.clock = clock
        self.source = ""
        """The text of its ConfigMaps."""

    @property
    def container(self) -> str:
        """The id of its container, which runs or has ended."""
        return f"c://{self.name}" + (f"-{self.restarts}" if self.restarts else "")

    def print(self, *lines: str) -> None:
        """Write lines, at the node's time of now."""
        now = int(self.clock() * 1e9)
        self.log.write((now, line.encode()) for line in lines)

    def begin_anew(self) -> None:
        """Begin the log of the next container."""
        self.previous, self.log, self.restarts = self.log, PodLog(), self.restarts + 1


Program = Callable[[Pod], Awaitable[int]]
"""Writes a pod's lines and returns its exit code; a cancellation is SIGTERM."""


async def hello(pod: Pod) -> int:
    """Say one line, and end well."""
    pod.print(f"hello from {pod.name}")
    return 0


def pods_of_indexed(job: Object) -> Iterator[Object]:
    """Yield the pods that the Job controller makes of an Indexed Job."""
    meta, template = job["metadata"], job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    owner |= {"name": meta["name"], "uid": meta["uid"]}
    for index in range(job["spec"]["completions"]):
        own = template["metadata"]
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{index}-abcde",
                "labels": {**own["labels"], _INDEX: str(index)},
                "annotations": {**own["annotations"], _INDEX: str(index)},
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }


def pods_of(job: Object) -> Iterator[Object]:
    """Yield the pods that the operator makes of a job."""
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True}
    owner |= {"name": meta["name"], "uid": meta["uid"]}
    (specs,) = (value for key, value in job["spec"].items() if key.endswith("ReplicaSpecs"))
    for role, spec in specs.items():
        for number in range(spec.get("replicas", 1)):
            template = spec["template"]
            labels = {
                **template["metadata"].get("labels", {}),
                JOB: meta["name"],
                "training.kubeflow.org/replica-type": role.lower(),
                "training.kubeflow.org/replica-index": str(number),
            }
            name = f"{meta['name']}-{role.lower()}-{number}"
            own = {**template["metadata"], "name": name, "labels": labels}
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**own, "ownerReferences": [owner]},
                "spec": {**template["spec"], "restartPolicy": "Never"},
                "status": {"phase": "Pending"},
            }
