"""Lists of any number of objects, read in pages."""

from __future__ import annotations

from ciao_kernel.backends.kubernetes.object_fields import get, many
from ciao_kernel.errors import Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Manifest

_PAGE = 500
"""Objects in one answer: the server makes each page separately, and in a short time."""


async def pages(client: Client, path: str, selector: str = "", **fields: str) -> list[Manifest]:
    """List any number of objects, in pages.

    Args:
        client: The API server.
        path: Path of the list.
        selector: Label selector.
        fields: ``fieldSelector``.

    Raises:
        Refused, ClusterFault: From the client.
    """
    wanted = fields | ({"labelSelector": selector} if selector else {})
    query = {**wanted, "limit": str(_PAGE)}
    found: list[Manifest] = []
    while True:
        try:
            listed = await client.get(path, **query)
        except Refused as error:
            if error.code != 410 or "limit" not in query:
                raise
            # The list has expired between two pages: read all of it at once.
            query, found = dict(wanted), []
            continue
        found += many(listed, "items")
        more = get(listed, "metadata", "continue")
        if not more or not isinstance(more, str):
            return found
        query["continue"] = more
