"""Runs a short Python program in the container of a replica, by one exec.

The program comes by standard input, so nothing is needed in the image but Python, and it is the one
of this ciao, whatever ciao made the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.manifests import indexed_start
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica, State
from ciao_kernel.model.queries import Streams

ENTER = Right("get", "pods", subresource="exec")
"""What it needs of a user."""
_START = "exec(eval(input()))"
"""The program is one line: the end of standard input needs a server of Kubernetes 1.30."""


@dataclass(frozen=True, slots=True)
class EnteredPods:
    """The pods of a job, in which programs run.

    Args:
        client: The API server.
        job: The job.
        pods: The pod of each replica that has one.
        python: Interpreter in the image, if a pod does not start one itself.
    """

    client: Client
    job: Job
    pods: Mapping[Replica, Manifest]
    python: str

    async def may_enter(self) -> bool:
        """Return whether this user may run programs there."""
        (granted,) = await allowed(self.client, self.job.place, ENTER)
        return granted

    def why_not(self, replica: Replica) -> str:
        """Return why no program can run in a replica, after its name; "" if one can."""
        pod = self.pods.get(replica)
        if pod is None:
            return "it has no pod"
        now = status.of_pod(pod, replica)
        return "" if now.state is State.RUNNING else now.state.sentence

    async def run(
        self,
        replica: Replica,
        program: str,
        out: Callable[[bytes], Any],
        err: Callable[[bytes], Any] = lambda _: None,
        rest: AsyncIterator[bytes] | None = None,
    ) -> int:
        """Run a program, and return its exit code.

        Args:
            replica: The replica, which has a pod.
            program: Its text.
            out: Receives its standard output.
            err: Receives its standard error.
            rest: Its standard input after the text; None: that ends. See :func:`never`.

        Raises:
            BackendError: From the client, or from ``out``.
        """

        async def typed() -> AsyncIterator[bytes]:
            yield repr(program).encode() + b"\n"
            if rest is not None:
                async for data in rest:
                    yield data

        pod = self.pods[replica]
        command = [_interpreter(pod, self.python), "-I", "-S", "-c", _START]
        path = f"/api/v1/namespaces/{self.job.place}/pods/{pod['metadata']['name']}"
        streams = Streams(out, err, typed())
        container = job_metadata.container(pod)
        return await exec.execute(self.client, path, container, command, streams)


async def never() -> AsyncIterator[bytes]:
    """Yield nothing, and do not end: for a program that ends with its standard input."""
    await asyncio.Event().wait()
    yield b""


def _interpreter(pod: Manifest, default: str) -> str:
    """Return the interpreter that a pod starts; it may be another one than the image's first."""
    name = job_metadata.container(pod)
    for one in many(pod, "spec", "containers"):
        words = indexed_start.own_words(one.get("command"))
        if one.get("name") == name and isinstance(words, list) and words:
            first = str(words[0])
            return first if first.rpartition("/")[2].startswith("python") else default
    return default
