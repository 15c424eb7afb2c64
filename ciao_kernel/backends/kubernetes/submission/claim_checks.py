"""Checks of the claims of a job before it exists: are they there, and can all replicas use them?

A pod with a claim that is missing, or in use on another node, waits without an end. Who may not
read claims gets such a job, and the table has the cluster's reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.backends.kubernetes.output import output_claim
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.states import event_texts
from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints
from ciao_kernel.errors import ClusterFault, Refused, SpecError
from ciao_kernel.kube.client import Object
from ciao_kernel.model import JobSpec, VolumeKind
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.visible_text import short, visible

READ = Right("get", "persistentvolumeclaims")
"""Optional right: with it a claim that cannot be used is told before the job exists."""
_SHOWN = "`kubectl get pvc` shows the claims."
_WAITS = ("WaitForFirstConsumer", "WaitForPodScheduled", "ExternalProvisioning", "Provisioning")
"""Reasons of events of a claim that gets its disk by its first pod, or just now."""
_WORDS = 300
_OUTPUT = "output"
"""Directive whose claim is named by the setting ``outputClaim``, unless another one names it."""


@dataclass(frozen=True, slots=True)
class _Use:
    """How a job uses a claim."""

    directive: str
    """The one that names the claim."""
    writes: bool
    """Whether replicas may write to it."""
    replicas: int
    """So many mount it."""


async def check(
    spec: JobSpec, target: Target, settings: Settings, name: str = ""
) -> tuple[str, ...]:
    """Check the claims of ``%volume``, ``%checkpoint`` and ``%output``; return what is to be said.

    Args:
        spec: The cell's header.
        target: Cluster and namespace.
        settings: The claims of cells that name none.
        name: Name of the job.

    Raises:
        SpecError: A claim is missing or lost, or one replica alone may use it; or ``by:claim`` has
            none.
    """
    used = _used(spec, settings, name)
    if not used or not all(await allowed(target.client, target.namespace, READ)):
        return ()
    found = await asyncio.gather(*(_find(target, claim) for claim in used))
    said = []
    for (claim, use), item in zip(used.items(), found, strict=True):
        if item is not None:
            _check_state(item, claim, use.directive, target)
            said += [
                await _why_pending(item, claim, target),
                _one_node(item, claim, use, several=len(spec.groups) > 1),
            ]
    return tuple(text for text in said if text)


def _used(spec: JobSpec, settings: Settings, name: str) -> Mapping[str, _Use]:
    """Return how each claim is used."""
    found: dict[str, _Use] = {}
    claims = [one for one in spec.all_volumes if one.kind is VolumeKind.CLAIM]
    for claim in dict.fromkeys(one.source for one in claims):
        own = [one for one in claims if one.source == claim]
        found[claim] = _Use(
            "volume",
            any(not one.read_only for one in own),
            sum(
                group.count
                for group in spec.groups
                if any(one in spec.volumes_of(group.role) for one in own)
            ),
        )
    for one in checkpoints.on_cluster(spec, settings, name):
        found[one.source] = _Use("checkpoint", True, sum(group.count for group in spec.groups))
    if OutputWay.CLAIM in spec.output_ways and spec.kept_paths:
        claim = output_claim.place(spec, settings).claim
        all_of_them = _Use(_OUTPUT, True, sum(group.count for group in spec.groups))
        known = found.get(claim, all_of_them)
        fewer = known.replicas < all_of_them.replicas
        found[claim] = all_of_them if fewer else replace(known, writes=True)
    return found


async def _find(target: Target, claim: str) -> Object | None:
    """Return a claim; None if it cannot be read; ``{}`` if there is none."""
    path = f"/api/v1/namespaces/{target.namespace}/persistentvolumeclaims/{claim}"
    try:
        return await target.client.find(path) or {}
    except Refused as error:
        if error.code == 401:
            raise
        return None


def _check_state(item: Object, claim: str, directive: str, target: Target) -> None:
    place = f"claim {claim} in the namespace {target.namespace}"
    names = "the setting outputClaim" if directive == _OUTPUT else f"%{directive}"
    if not item:
        raise SpecError(
            f"there is no {place}.",
            f"{_SHOWN} Name another one in {names}, or ask an administrator for it.",
            directive=directive,
        )
    if get(item, "metadata", "deletionTimestamp"):
        raise SpecError(
            f"the {place} is being deleted.",
            f"{_SHOWN} Name another one in {names}.",
            directive=directive,
        )
    if get(item, "status", "phase") == "Lost":
        raise SpecError(
            f"the {place} has lost its disk.",
            f"Name another one in {names}, or ask an administrator.",
            directive=directive,
        )


async def _why_pending(item: Object, claim: str, target: Target) -> str:
    """Return why a claim has no disk, in the cluster's words; "" if it has one, or gets one."""
    if get(item, "status", "phase") != "Pending":
        return ""
    path = f"/api/v1/namespaces/{target.namespace}/events"
    uid = get(item, "metadata", "uid")
    try:
        events = await target.client.get(path, fieldSelector=f"involvedObject.uid={uid}")
    except (Refused, ClusterFault):
        return ""
    last = max(many(events, "items"), key=event_texts.event_time, default={})
    words = event_texts.sentence(last)
    if not words or last.get("reason") in _WAITS:
        return ""
    words = visible(short(words, _WORDS)).rstrip(".")
    return f"the claim {claim} has no disk yet, and the replicas wait for it: {words}."


def _one_node(item: Object, claim: str, use: _Use, *, several: bool) -> str:
    """Return that replicas on several nodes cannot share a claim; "" if they can.

    Args:
        item: The claim.
        claim: Its name.
        use: How the job uses it.
        several: Whether the job has several roles.

    Raises:
        SpecError: One pod alone may use it.
    """
    found = get(item, "spec", "accessModes")
    modes = set(map(str, found)) if isinstance(found, list) else set()
    shared = "ReadWriteMany" in modes or ("ReadOnlyMany" in modes and not use.writes)
    if not modes or use.replicas < 2 or shared:
        return ""
    if modes == {"ReadWriteOncePod"}:
        role = ", or write %volume behind a role of one" if several else ""
        other = role if use.directive == "volume" else ""
        raise SpecError(
            f"the claim {claim} is for one pod at a time (ReadWriteOncePod), and the job has "
            "several replicas.",
            "Name a claim with the access mode ReadWriteMany, or let the job have one replica"
            f"{other}.",
            directive=use.directive,
        )
    return (
        f"the claim {claim} can be used on one node at a time ({', '.join(sorted(modes))}): if the "
        "replicas come to several nodes, some of them wait for it without an end."
    )
