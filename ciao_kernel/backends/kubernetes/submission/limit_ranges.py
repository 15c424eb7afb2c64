"""Reads the LimitRanges of a namespace: what its administrator adds to containers, and allows."""

from __future__ import annotations

import logging
from typing import Any

from ciao_kernel import log
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.errors import BackendError

_log = logging.getLogger(__name__)


async def read(target: Target) -> list[Any] | None:
    """Return the LimitRanges, None if this user may not list them or the server does not answer.

    Args:
        target: Cluster and namespace.
    """
    client, namespace = target.client, target.namespace
    if not all(await allowed(client, namespace, Right("list", "limitranges"))):
        return None
    with log.ignored(_log, "reading limit ranges", BackendError):
        found = await client.known(f"/api/v1/namespaces/{namespace}/limitranges")
        return list(many(found, "items"))
    return None


async def of_containers(target: Target) -> tuple[Any, ...]:
    """Return the rules for containers; none if this user may not list the LimitRanges.

    Called where a quota counts a job's containers, and where a job gets one that the cell does not
    describe.

    Args:
        target: Cluster and namespace.
    """
    rules = (rule for item in await read(target) or () for rule in many(item, "spec", "limits"))
    return tuple(rule for rule in rules if rule.get("type") == "Container")
