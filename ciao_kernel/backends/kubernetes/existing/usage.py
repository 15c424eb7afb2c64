"""What the replicas of a job use: by one exec for each of a few replicas, else by metrics.k8s.io.

A container knows its peak and its limit itself. An exec costs the cluster a tenth of a second, so
of many replicas only the metrics of the cluster are read, by one request for all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.existing.pod_answer import PodAnswer
from ciao_kernel.backends.kubernetes.existing.pod_program import ENTER, EnteredPods, never
from ciao_kernel.backends.kubernetes.object_fields import get, many, number
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube import quantities
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest, Replica
from ciao_kernel.model.usage import GpuUsage, Usage, UsageReport

MOST = 16
"""Replicas that are entered at most."""
_APART = 0.5
"""Seconds over which a container measures its processors."""
_SLOWEST = 20.0
_PATIENCE = 10.0
_EVERY = 2.0
_MOST = 1e18
"""No pod measures larger numbers."""
_LONGEST = 1 << 16
"""Bytes of a reading, at most."""
_METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods"
_BY_METRICS = (
    "By metrics.k8s.io: means of the last seconds, some seconds old, without the peak and GPUs."
)


async def usage(pods: EnteredPods, replicas: Sequence[Replica]) -> UsageReport:
    """Return what some replicas use.

    Args:
        pods: The pods of the job.
        replicas: The replicas to ask.

    Raises:
        BackendError: Nothing measures them, or this user may not ask.
    """
    job = pods.job
    found = {one: Usage(one, fault=pods.why_not(one)) for one in replicas}
    running = [one for one in replicas if not found[one].fault]
    obstacle = ""
    if len(running) > MOST:
        obstacle = f"{len(running)} replicas are too many to enter each of them"
    elif running:
        if await pods.may_enter():
            tasks = [_enter(pods, one) for one in running]
            found.update(zip(running, await asyncio.gather(*tasks), strict=True))
        else:
            obstacle = f"you may not enter pods, as you lack the right to {ENTER}"
    remark = ""
    if unknown := [one for one in running if obstacle or found[one].fault]:
        measured, why = await _metrics(pods.client, job)
        if obstacle and why:
            raise BackendError(
                f"what the replicas of {job.name} use is not known: {obstacle}, and {why}.",
                f"`ciao top {job.reference} --replica {running[0]}` asks one alone."
                if len(running) > MOST
                else "Ask an administrator for the Role of deploy/rbac/exec-role.yaml.",
            )
        for one in unknown:
            known = _measured(one, pods.pods[one], measured)
            found[one] = known or found[one]
            remark = _BY_METRICS if known else remark
            if obstacle and not known:
                found[one] = Usage(one, fault="it is not measured yet", awaited=True)
    return UsageReport(tuple(found[one] for one in replicas), remark)


async def watch(
    pods: EnteredPods,
    replica: Replica,
    note: Callable[[Usage], None],
    gpus: bool = False,
) -> None:
    """Measure a replica every two seconds until its container ends, by one exec.

    The program in the container ends with its standard input, so with the connection too.

    Args:
        pods: The pods of the job.
        replica: The replica.
        note: Receives each reading.
        gpus: Ask nvidia-smi too.

    Raises:
        BackendError: The container does not run, this user may not enter it, or it has no Python.
    """
    if obstacle := pods.why_not(replica):
        raise BackendError(f"{replica} cannot be measured: {obstacle}")
    from ciao_kernel.delivery.inspection import usage_reader

    if not await pods.may_enter():
        raise Refused(f"you lack the right to {ENTER}.", code=403, reason="Forbidden")
    rest = b""

    def take(data: bytes) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[-_LONGEST:]
        for line in lines:
            if (reading := _reading(replica, line)) is not None:
                note(reading)

    program = usage_reader.program(f"watch({_EVERY}, {gpus})")
    code = await pods.run(replica, program, take, rest=never())
    if code:
        raise BackendError(f"{replica} cannot be measured: the program ended with {code}.")


async def _enter(pods: EnteredPods, replica: Replica) -> Usage:
    from ciao_kernel.delivery.inspection import usage_reader

    answer = PodAnswer(_LONGEST)
    try:
        async with asyncio.timeout(_SLOWEST):
            program = usage_reader.program(f"print(json.dumps(look({_APART})))")
            code = await pods.run(replica, program, answer.out, answer.err)
    except TimeoutError:
        return Usage(replica, fault="its node did not answer")
    except BackendError as error:
        return Usage(replica, fault=error.message.rstrip("."))
    if code:
        return Usage(replica, fault=f"it cannot be asked: {answer.last_error()}")
    found = _reading(replica, answer.text)
    return found or Usage(replica, fault="its container has no files of a control group")


def _reading(replica: Replica, line: bytes) -> Usage | None:
    """Return what a container has written of itself; None if that is no reading."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not found:
        return None
    sizes = (number(found.get(name), _MOST) for name in ("memory", "peak", "limit"))
    memory, peak, limit = (None if size is None else int(size) for size in sizes)
    gpus = found.get("gpus")
    shown = [one for one in gpus if isinstance(one, list)] if isinstance(gpus, list) else []
    return Usage(
        replica, number(found.get("cpu"), _MOST), memory, peak, limit, tuple(map(_gpu, shown))
    )


def _gpu(values: list[Any]) -> GpuUsage:
    share, used, total = (number(one, _MOST) for one in [*values, None, None, None][:3])
    return GpuUsage(
        share, None if used is None else int(used), None if total is None else int(total)
    )


async def _metrics(client: Client, job: Job) -> tuple[dict[str, Manifest], str]:
    """Return the metrics of each pod of a job, or why there are none, as part of a sentence."""
    path = _METRICS.format(job.place)
    try:
        async with asyncio.timeout(_PATIENCE):  # the API may be registered without its server
            listed = await client.get(path, labelSelector=job_metadata.selector(job))
    except Refused as error:
        if error.code == 403:
            return {}, f"you may not list pods.metrics.k8s.io in {job.place}"
        if error.code == 404:
            return {}, "the cluster has no metrics (metrics.k8s.io)"
        return {}, f"the cluster's metrics do not answer ({error.code})"
    except (ClusterFault, TimeoutError):
        return {}, "the cluster's metrics do not answer"
    items = many(listed, "items")
    return {str(get(one, "metadata", "name")): one for one in items}, ""


def _measured(replica: Replica, pod: Manifest, metrics: Mapping[str, Manifest]) -> Usage | None:
    """Return what the metrics of the cluster tell about a replica; None if they do not."""
    name = job_metadata.container(pod)
    own = metrics.get(str(get(pod, "metadata", "name")), {})
    used = next((one for one in many(own, "containers") if one.get("name") == name), {})
    cpu = _amount(get(used, "usage", "cpu"))
    memory = _size(get(used, "usage", "memory"))
    if cpu is None and memory is None:
        return None
    spec = next((one for one in many(pod, "spec", "containers") if one["name"] == name), {})
    limit = _size(get(spec, "resources", "limits", "memory"))
    return Usage(replica, cpu, memory, limit=limit)


def _size(text: Any) -> int | None:
    found = _amount(text)
    return None if found is None else int(found)


def _amount(text: Any) -> float | None:
    found = quantities.quantity(text) if isinstance(text, str) else None
    return None if found is None else float(found)
