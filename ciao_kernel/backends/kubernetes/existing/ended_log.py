"""Reads the log of a container until one more answer has no new line.

A kubelet that ends cuts its answer, and the API server ends its own in order: the cut is not seen.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ciao_kernel import log
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube import timestamps
from ciao_kernel.kube.client import Client
from ciao_kernel.model.log_pieces import whole_lines

_log = logging.getLogger(__name__)


async def read(client: Client, path: str, query: dict[str, str]) -> AsyncGenerator[bytes, None]:
    """Yield the log of a container that has ended, in pieces of whole lines.

    Args:
        client: The API server.
        path: Path of the pod's log.
        query: Query parameters, with ``timestamps=true``.

    Raises:
        Refused, ClusterFault: There was no answer, or it was cut off.
    """
    last = rest = b""
    async with aclosing(whole_lines(client.pieces(path, **query))) as pieces:
        async for piece in pieces:
            lines, rest = _parts(piece)
            if lines:
                last = _last_line(lines)
                yield lines
    follows = {key: value for key, value in query.items() if key != "tailLines"}
    while newest := timestamps.normal(last):
        follows["sinceTime"] = timestamps.second_before(newest)
        answer = b""
        with log.ignored(_log, "reading the end of a log", Refused, ClusterFault):
            answer = await client.text(path, **follows)
        more = _behind(last, answer)
        if len(more) <= len(rest):
            break
        lines, rest = _parts(more)
        if not lines:
            continue
        last = _last_line(lines)
        yield lines
    if rest:
        yield rest


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """Return the lines that have come to their end, and the rest."""
    end = data.rfind(b"\n") + 1
    return data[:end], data[end:]


def _last_line(lines: bytes) -> bytes:
    """Return the last line, without its end."""
    return lines[lines.rfind(b"\n", 0, len(lines) - 1) + 1 : -1]


def _behind(last: bytes, answer: bytes) -> bytes:
    """Return what an answer has behind a line; nothing if it does not have the line."""
    line = b"\n" + last + b"\n"
    at = (b"\n" + answer).rfind(line)
    return b"" if at < 0 else answer[at + len(line) - 1 :]
