"""What a server is asked before a job is created: whether its name is free, and it may be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ciao_kernel.backends.kubernetes import checks, manifest, marks, quotas, status
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.backends.kubernetes.target import Target
from ciao_kernel.errors import Refused

_TRIED = 60.0
"""Seconds for which the server is believed to take a job like one that it took."""
_LIKE = "a job like "
_BY_HEART = {"resourceVersion": "0"}
"""Asks the API server for what it has in memory: it need not ask its database first."""


async def taken(target: Target, path: str, name: str) -> bool:
    """Whether a job of our kinds has that name, or pods of another kind have those of ours.

    What the server knows by heart will do where that is nothing: of what came this very moment it
    tells at the creation. What is there is asked for again: it may have gone this very moment.
    """
    return await _there(target, path, name, _BY_HEART) and await _there(target, path, name, {})


async def _there(target: Target, path: str, name: str, how: Mapping[str, str]) -> bool:
    pods = f"/api/v1/namespaces/{target.namespace}/pods"
    query = {"labelSelector": f"{marks.OPERATOR_JOB}={name}", **how}
    group = path.rpartition("/")[0]
    others = [_seen(target, f"{group}/{kind}/{name}", how) for kind in marks.KINDS]
    listed, *jobs = await asyncio.gather(target.client.get(pods, **query), *others)
    return any(jobs) or bool(status.many(listed, "items"))


async def _seen(target: Target, path: str, how: Mapping[str, str]) -> bool:
    try:
        return await target.client.find(path, **how) is not None
    except Refused as error:
        if error.code != 403:  # a kind that this user has nothing to do with
            raise
        return False


async def try_out(target: Target, made: Objects, *, whole: bool = False) -> Objects:
    """Let the server try what it would make of a job; return the objects that it takes.

    A job like one that it took a minute ago, which is a cell that was edited, is not tried again.

    Args:
        target: Where.
        made: The objects. Where Pod Security wants pods that ask for no rights, they become such.
        whole: Try the job itself too. Before a submission that is not needed: it is created first,
            and if that is refused nothing exists.

    Raises:
        SpecError, ClusterFault: The cluster would refuse it.
    """
    client, name = target.client, made.job["metadata"]["name"]
    key = _LIKE + manifest.shape(made)
    if not whole and (before := client.kept(key)):
        return manifest.secured(made) if before["secured"] and not made.secured else made

    async def once(made: Objects) -> None:
        items = [(marks.collection(item), item) for item in made.beside]
        items += [(made.path, made.job)] if whole else []
        pods = [
            checks.as_pod(pod, f"{name}-{role.lower()}-try", target.namespace)
            for role, pod in manifest.pods_of(made.job).items()
        ]
        # Where both find that there is no room, the one that has counted the whole job says so.
        counted, tried = await asyncio.gather(
            quotas.check(target, made),
            checks.dry_run(target, items, pods),
            return_exceptions=True,
        )
        for answer in (counted, tried):
            if isinstance(answer, BaseException):
                raise answer
        if not counted:  # what is left of a quota is another matter with each job
            client.keep(key, {"secured": made.secured}, _TRIED)

    try:
        await once(made)
    except checks.Insecure:
        if made.secured:
            raise
        made = manifest.secured(made)
        await once(made)
    return made
