"""Connects a front end to a process in a pod that waits at a prompt, by one program in the pod.

No port of the pod is opened: the program connects to the socket of the process, and its standard
streams go over the WebSocket of ``pods/exec``.
"""

from __future__ import annotations

import asyncio

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.existing.pod_answer import PodAnswer
from ciao_kernel.backends.kubernetes.existing.pod_program import EnteredPods
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.delivery import site_folder
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.visible_text import short

_PATIENCE = 5.0
"""Seconds in which a process must answer."""
_SLOWEST = 20.0
"""Seconds in which its node must."""
_ENTER = tuple(Right(verb, "pods", subresource="exec") for verb in ("get", "create"))


async def why_not(target: Target) -> str:
    """Return why this user cannot enter the pods of a namespace; "" if the user can."""
    may = await allowed(target.client, target.namespace, *_ENTER)
    missing = [str(right) for right, granted in zip(_ENTER, may, strict=True) if not granted]
    return f"its user lacks the right to {missing[0]}" if missing else ""


async def debug(
    pods: EnteredPods,
    replica: Replica,
    pid: int,
    streams: Streams,
    rank: str = "",
) -> bool:
    """Carry a conversation until one side ends it; return at once if no process waits.

    Args:
        pods: The pods of the job.
        replica: The replica.
        pid: Number of the process in the pod; 0 means any that waits.
        streams: The person's side.
        rank: Number of the process in the replica, if it was named; "" means any.

    Returns:
        False if the prompt of the process is open elsewhere.

    Raises:
        BackendError: There is no connection.
    """
    # Late: nothing else needs it.
    from ciao_kernel.delivery.inspection import debug_bridge, program_texts

    if pods.why_not(replica):
        return True
    job = pods.job
    places = [site_folder.path(job.workdir), "/dev/shm", "/tmp"]
    program = program_texts.bridge(f"CIAO_JOB={job.name}", "", pid, places, rank)
    answer = PodAnswer()
    code = await pods.run(replica, program, streams.out, answer.err, streams.input)
    if code not in (0, debug_bridge.NOBODY, debug_bridge.OPEN):
        raise BackendError(f"the connection ended with code {code}: {answer.last_error()}")
    return code != debug_bridge.OPEN


async def halt(
    pods: EnteredPods,
    replica: Replica,
    rank: str = "",
    *,
    within: float = _SLOWEST,
) -> str:
    """Let a process in a pod stop at the next line of its program.

    Args:
        pods: The pods of the job.
        replica: The replica.
        rank: Number of the process in the replica, if it was named; "" means the first that stops.
        within: Seconds for the answer.

    Returns:
        How the process answered; "" if there is none.

    Raises:
        BackendError: It cannot be asked, or its answer is late.
    """
    from ciao_kernel.delivery.inspection import program_texts

    if replica not in pods.pods:
        return ""
    program = program_texts.halt(f"CIAO_JOB={pods.job.name}", _PATIENCE, rank)
    answer = PodAnswer()

    try:
        async with asyncio.timeout(within):
            code = await pods.run(replica, program, answer.out, answer.err)
    except TimeoutError:
        raise BackendError(
            "the replica cannot be asked: its node did not answer.", "Try again."
        ) from None
    if code:
        raise BackendError(f"it cannot be asked: {answer.last_error()}")
    return short(answer.text.decode("utf-8", "replace").strip())
