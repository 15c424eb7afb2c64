"""``python -m benchmarks.observer NAMESPACE JOB``: tell when a job and its pods change.

A process with connections of its own, so that its times do not depend on what is measured. It
writes a line of JSON at each change: seconds since the epoch, the job's last condition ("" for
a job that is not there), and how many pods there are of each phase.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

from ciao_kernel.kube import access
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.watch import WatchedList


async def main(namespace: str, name: str) -> None:
    """Watch until somebody ends this process."""
    changed = asyncio.Event()
    async with Client(await access.load()) as client:
        job = WatchedList(
            client,
            f"/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs",
            {"fieldSelector": f"metadata.name={name}"},
            changed,
        )
        pods = WatchedList(
            client,
            f"/api/v1/namespaces/{namespace}/pods",
            {"labelSelector": f"training.kubeflow.org/job-name={name}"},
            changed,
        )
        tasks = [asyncio.create_task(one.run()) for one in (job, pods)]
        told = None
        while not any(task.done() for task in tasks):
            await changed.wait()
            changed.clear()
            now = _state(job, pods)
            if job.listed and pods.listed and now != told:
                told = now
                print(json.dumps({"at": time.time(), **now}), flush=True)
        for task in tasks:
            task.cancel()


def _state(job: WatchedList, pods: WatchedList) -> dict[str, object]:
    condition = ""
    for item in job.items.values():
        conditions = (item.get("status") or {}).get("conditions") or []
        condition = next((c["type"] for c in reversed(conditions) if c["status"] == "True"), "None")
    phases = Counter(item["status"]["phase"] for item in pods.items.values())
    return {"condition": condition, "pods": dict(phases)}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
