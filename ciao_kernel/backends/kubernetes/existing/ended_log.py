"""Reads the log of a container until one more answer has no new line.

A kubelet that ends cuts its answer, and the API server ends its own in order: the cut is not seen.
"""

from __future__ import annotations

import logging

from ciao_kernel import log
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import timestamps
from ciao_kernel.kube.client import Client

_log = logging.getLogger(__name__)


async def read(client: Client, path: str, query: dict[str, str]) -> bytes:
    """Return the log of a container that has ended.

    Args:
        client: The API server.
        path: Path of the pod's log.
        query: Query parameters, with ``timestamps=true``.

    Raises:
        Refused, ClusterFault: There was no answer.
    """
    found = await client.text(path, **query)
    follows = {key: value for key, value in query.items() if key != "tailLines"}
    with log.ignored(_log, "reading the end of a log", Refused, ClusterFault):
        while last := timestamps.normal(_last_line(found)):
            follows["sinceTime"] = timestamps.second_before(last)
            longer = _continued(found, await client.text(path, **follows))
            if len(longer) <= len(found):
                break
            found = longer
    return found


def _last_line(found: bytes) -> bytes:
    """Return the last line that has come to its end, without that; b"" if there is none."""
    end = max(0, found.rfind(b"\n"))
    return found[found.rfind(b"\n", 0, end) + 1 : end]


def _continued(found: bytes, answer: bytes) -> bytes:
    """Return a log with the lines that an answer has behind its last whole line."""
    line = b"\n" + _last_line(found) + b"\n"
    at = (b"\n" + answer).rfind(line)
    if at < 0:
        return found
    return found[: found.rfind(b"\n") + 1] + answer[at + len(line) - 1 :]
