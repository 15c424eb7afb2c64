"""Checks by the server before a job is created: of its name, and of its objects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.apis import Api, job_metadata, template_holder
from ciao_kernel.backends.kubernetes.cluster import checks
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import next_try
from ciao_kernel.backends.kubernetes.manifests import manifest, pod_security, queue_request
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.backends.kubernetes.object_fields import many
from ciao_kernel.backends.kubernetes.rights import Right, allowed
from ciao_kernel.backends.kubernetes.submission import quotas
from ciao_kernel.errors import NoRoom, Refused
from ciao_kernel.model import Manifest, Notice, naming
from ciao_kernel.plugins import Emit

_TRIED = 60.0
"""Seconds for which a job like an accepted job is not tried again."""
_LIKE = "a job like "
_NAMED = "names given to "
_REMEMBERED = 86_400.0
"""Seconds for which names that this process has given are asked for first."""
_AT_ONCE = 8
"""Such names that are asked for together."""
_CONNECTIONS = 4
"""Questions about one name that are asked together: each needs a connection, and after a pause
between two cells a handshake takes longer than a few short answers."""
_ABSENT = "kinds at "
_STAYS_ABSENT = 60.0
"""Seconds in which a cluster without an API is not asked for it again."""
_FROM_CACHE = {"resourceVersion": "0"}
"""Query for the API server's memory, which saves it a read of its database."""


def remember(target: Target, path: str, name: str) -> None:
    """Note that this process has given the name to a job, for :func:`our_names`."""
    names = target.client.cache.get(_NAMED + path) or {}
    target.client.cache.keep(_NAMED + path, {**names, name: True}, _REMEMBERED)


async def our_names(target: Target, path: str, wanted: str) -> dict[str, bool]:
    """Return names that this process has given, and whether a job of that kind still has them.

    An edited cell with ``%name`` comes after such jobs, and asks all kinds for the next name only.
    The names are asked for together; names behind the first free one may be missing.

    Args:
        target: Cluster and namespace.
        path: Path of all jobs of the kind.
        wanted: The name in the cell, without a number.
    """
    given = target.client.cache.get(_NAMED + path) or {}
    numbers = range(1, naming.MOST + 1) if given else ()
    names = [one for number in numbers if (one := naming.numbered(wanted, number)) in given]
    found: dict[str, bool] = {}
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        # Not from the server's memory: the last of them may have been created a moment ago.
        seen = await asyncio.gather(*(_seen(target, f"{path}/{one}", {}) for one in some))
        found |= dict(zip(some, seen, strict=True))
        if not all(seen):
            break
    return found


async def taken(target: Target, path: str, name: str, *, asks_own: bool = True) -> bool:
    """Return whether a job of our kinds has that name, or pods of another kind's job use it.

    An empty answer from the server's memory is enough: the creation itself detects a name taken
    just now. Otherwise the server is asked again, because the objects may just have been deleted.

    Args:
        target: Cluster and namespace.
        path: Path of all jobs of the kind that is created.
        name: The name.
        asks_own: Ask for a job of that kind too; False if :func:`our_names` has just found none.
    """
    first = await _there(target, path, name, _FROM_CACHE, asks_own=asks_own)
    return first and await _there(target, path, name, {})


async def _there(
    target: Target, path: str, name: str, how: Mapping[str, str], *, asks_own: bool = True
) -> bool:
    pods = f"/api/v1/namespaces/{target.namespace}/pods"
    api = apis.of_resource(apis.resource_of(path))
    query = {"labelSelector": f"{api.job_label}={name}", **how}
    siblings = {api.at(target.namespace, kind) for kind in await _served(target, api)} - {path}
    same = [f"{kind}/{name}" for kind in [*([path] if asks_own else []), *sorted(siblings)]]
    same.append(next_try.path(target.namespace, name))
    others = await asyncio.gather(
        *(_readable(target, other) for other in apis.ALL if other is not api)
    )
    turns = asyncio.Semaphore(_CONNECTIONS)

    async def found(path: str) -> Manifest | None:
        async with turns:
            return await _found(target, path, how)

    async def pods_of_that_name() -> bool:
        async with turns:
            return bool(many(await target.client.get(pods, **query), "items"))

    async def ours(path: str) -> bool:
        item = await found(path)
        return item is not None and job_metadata.is_ours(item)

    answers = await asyncio.gather(
        pods_of_that_name(),
        *(found(one) for one in same),
        *(ours(f"{kind}/{name}") for readable in others for kind in readable),
    )
    return any(answers)


async def _readable(target: Target, api: Api) -> list[str]:
    """Return the paths of an API's jobs, of the kinds that this user may read."""
    kinds = await _served(target, api)
    rights = [Right("get", kind, api.group) for kind in kinds]
    may = await allowed(target.client, target.namespace, *rights) if rights else []
    return [api.at(target.namespace, kind) for kind, has in zip(kinds, may, strict=True) if has]


async def _served(target: Target, api: Api) -> Sequence[str]:
    """Return the kinds of an API that the cluster serves, or all if this user may not ask."""
    kinds = [plural.partition(".")[0] for plural in api.plurals]
    if target.client.cache.get(_ABSENT + api.path):
        return []
    try:
        served = await target.kinds(api.path)
    except Refused:
        return kinds
    if not served:
        target.client.cache.keep(_ABSENT + api.path, {"absent": True}, _STAYS_ABSENT)
    return [kind for kind in kinds if kind in served]


async def _seen(target: Target, path: str, how: Mapping[str, str]) -> bool:
    return await _found(target, path, how) is not None


async def _found(target: Target, path: str, how: Mapping[str, str]) -> Manifest | None:
    try:
        return await target.client.find(path, **how)
    except Refused as error:
        if error.code != 403:  # a kind that this user may not read
            raise
        return None


async def try_out(
    target: Target, made: Objects, *, whole: bool = False, emit: Emit = lambda _: None
) -> Objects:
    """Try a job in a dry run of the server; return the objects that it accepts.

    A job like another accepted within the last minute, such as an edited cell, is not tried again.

    Args:
        target: Cluster and namespace.
        made: The objects. If Pod Security requires it, their pods give up all privileges.
        whole: Try the job itself too. Before a submission that is not needed: the job is created
            first, and if it is refused nothing exists.
        emit: Receives a notice if a policy may refuse the job's pods.

    Raises:
        SpecError, ClusterFault: The cluster would refuse the job.
    """
    client, name = target.client, made.job["metadata"]["name"]
    key = _LIKE + manifest.shape(made)
    if not whole and (before := client.cache.get(key)):
        return pod_security.secured(made) if before["secured"] and not made.secured else made

    async def once(made: Objects, *, waits: bool = False) -> None:
        items = [(job_metadata.collection(item), item) for item in made.beside]
        items += [(made.path, made.job)] if whole else []
        pods = [
            _as_pod(pod, f"{name}-{role.lower()}-try", target.namespace)
            for role, pod in template_holder.pod_templates(made.holder).items()
        ]
        # If both find no room, the check that counts the whole job raises its error.
        counted, tried = await asyncio.gather(
            quotas.check(target, made, waits=waits),
            checks.dry_run(target, items, pods, made.job, waits=waits),
            return_exceptions=True,
        )
        for answer in (counted, tried):
            if isinstance(answer, BaseException):
                raise answer
        if isinstance(tried, str) and tried:
            emit(Notice(tried))
        if not counted:  # the rest of a quota changes with each job
            client.cache.keep(key, {"secured": made.secured}, _TRIED)

    async def now_or_later(made: Objects) -> None:
        try:
            await once(made)
        except NoRoom:
            if not await queue_request.holds(target, made):
                raise
            await once(made, waits=True)

    try:
        await now_or_later(made)
    except checks.PodSecurityViolation:
        if made.secured:
            raise
        made = pod_security.secured(made)
        await now_or_later(made)
    return made


def _as_pod(template: Manifest, name: str, namespace: str) -> Manifest:
    """Return the pod that a job's controller would create from a template."""
    meta = {**template["metadata"], "name": name, "namespace": namespace}
    spec = {**template["spec"], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
