"""Runs a command in the pod of a replica, for ``ciao exec`` and for the files of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.manifests import indexed_start
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.output import output_state
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.errors import BackendError
from ciao_kernel.kube import exec
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica, State
from ciao_kernel.model.queries import Streams


async def execute(
    client: Client,
    job: Job,
    replica: Replica,
    pod: Manifest | None,
    command: Sequence[str],
    streams: Streams,
) -> int:
    """Run a command in a replica's container, or in the one that keeps its files.

    Args:
        client: The API server.
        job: The job.
        replica: The replica.
        pod: Its pod; None if it has none.
        command: The command.
        streams: Its input and output.

    Returns:
        The exit code of the command.

    Raises:
        BackendError: The container is not running, or the command cannot be run.
    """
    now = status.of_pod(pod, replica) if pod else None
    held = output_state.is_held(pod)
    if held and pod is not None:
        now = None if now is None else replace(now, state=State.RUNNING)
    if pod is None or now is None or now.state is not State.RUNNING:
        what = now.state.sentence if now else "it has no pod"
        raise BackendError(
            f"no command can be run in {replica} of {job.name}: {what}.",
            f"`%ciao describe {job.reference}` shows its status.",
        )
    path = f"/api/v1/namespaces/{job.place}/pods/{pod['metadata']['name']}"
    if held:
        return await exec.execute(client, path, output_state.NAME, command, streams)
    name = job_metadata.container(pod)
    containers = many(pod, "spec", "containers")
    own = next((one for one in containers if one.get("name") == name), {})
    # The operator's variables are in the container; those of other APIs are in a file.
    words = indexed_start.enter(own, command)
    return await exec.execute(client, path, name, words, streams)
