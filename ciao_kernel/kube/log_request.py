"""One request to the log endpoint: returns the new lines of the answer, and how it ended."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.kube.access import Access
from ciao_kernel.kube.client import Client, refused
from ciao_kernel.kube.read_pauses import ReadPauses
from ciao_kernel.kube.replay import Mismatch, Replay
from ciao_kernel.kube.resume_position import Gap, Lines

if TYPE_CHECKING:
    import aiohttp

_CONNECT = 5.0
_UNCLEAR = 1.0
# Seconds for which lines are held back that may already be delivered; see Replay.holding.
_SILENCE = 0.05
# Seconds without data after which the rest of an ended container's log is read by another request.


class End(enum.Enum):
    """The end of an answer, or the reason why there was no answer."""

    CLEAN = enum.auto()  # in order; the container may still run, since kubelets restart
    AWAY = enum.auto()  # the API server was not reached
    CUT = enum.auto()  # no answer, or an incomplete one
    QUIET = enum.auto()  # no data for so long that the connection may be dead
    ASIDE = enum.auto()  # by :meth:`LogRequest.step_aside`
    MISMATCH = enum.auto()  # the answer does not continue the delivered lines
    NOTHING = enum.auto()  # 204, 400: no log, or not yet
    GONE = enum.auto()  # 404: the pod does not exist
    DENIED = enum.auto()  # 401, 403
    UNWELL = enum.auto()  # any other status
    WORDS = enum.auto()  # status 200, with an error text of the kubelet instead of lines


_ENDS = {204: End.NOTHING, 400: End.NOTHING, 401: End.DENIED, 403: End.DENIED, 404: End.GONE}


class LogRequest:
    """One request.

    Args:
        client: The API server.
        path: Path of the pod's log.
        query: Query parameters, with ``timestamps=true``.
        replay: Receives the answer.
        read_timeout: Seconds without a byte after which the connection counts as dead.
        pause: Seconds to pause after each read of a busy log.

    Attributes:
        end: The end of the answer.
        refusal: The server's error, if it did not send a log.
        answered: There was an answer with status 200.
        has_new_lines: The answer had new lines.
        shown: The credentials and the server of a request that was refused with 401 or not sent.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        query: Mapping[str, str],
        replay: Replay,
        read_timeout: float,
        pause: float,
    ) -> None:
        self._client = client
        self._path = path
        self._query = query
        self.replay = replay
        self._read_timeout = read_timeout
        self._pauses = ReadPauses(pause)
        self.end = End.CUT
        self.refusal: Refused | None = None
        self.answered = self.has_new_lines = False
        self.shown: Access | None = None
        self._steps_aside = False
        self._limit: asyncio.Timeout | None = None
        """The limit of the current read."""

    def step_aside(self) -> None:
        """End the request as soon as no data comes for a moment: its container has ended.

        A request that does not follow returns the rest at once. The kubelet ends an answer that
        follows up to a second after the container: it then looks whether the container runs
        (Kubernetes, pkg/kubelet/kuberuntime/logs/logs.go, ``logForceCheckPeriod``).
        """
        self._steps_aside = True
        if self._limit is not None:
            with suppress(RuntimeError):  # it expires just now
                self._limit.reschedule(asyncio.get_running_loop().time() + _SILENCE)

    async def read(self) -> AsyncGenerator[Lines | Gap, None]:
        """Send the request and yield new lines as they come; sets ``end`` instead of raising."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT, sock_read=self._read_timeout
        )
        sent = self._client.access
        try:
            async with self._client.request(
                "GET", self._path, self._query, timeout=timeout
            ) as answer:
                if answer.status != 200:
                    if answer.status == 401:
                        self.shown = sent  # another stream may have renewed it meanwhile
                    self.end = _ENDS.get(answer.status, End.UNWELL)
                    text = await answer.text(encoding="utf-8", errors="replace")
                    self.refusal = refused(answer.status, text, self._path)
                    return
                self.answered = True
                async with aclosing(self._pieces(answer)) as found:
                    async for pieces in found:
                        for piece in pieces:
                            self.has_new_lines = True
                            yield piece
            self.end = End.WORDS if self.replay.broken else End.CLEAN
        except _SteppedAside:
            self.end = End.ASIDE
        except Mismatch:
            self.end = End.MISMATCH
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, ClusterFault):
            # A certificate file may be replaced already, but its key not yet.
            self.end, self.shown = End.AWAY, sent
        except TimeoutError:
            self.end = End.QUIET if self.answered else End.CUT
        except (aiohttp.ClientError, OSError):
            self.end = End.CUT
        if self.end is End.WORDS:
            words = self.replay.words.decode(errors="replace").strip()
            self.refusal = Refused(words, code=200)

    async def _pieces(
        self, answer: aiohttp.ClientResponse
    ) -> AsyncGenerator[list[Lines | Gap], None]:
        replay, until = self.replay, 0.0
        while not replay.broken:
            if not replay.holding:
                until = 0.0
            elif not until:
                until = time.monotonic() + _UNCLEAR
            left = max(0.0, until - time.monotonic()) if until else None
            if self._steps_aside:
                left = _SILENCE
            try:
                async with asyncio.timeout(left) as limit:
                    self._limit = limit
                    data = await answer.content.readany()
            except TimeoutError:
                if not limit.expired():
                    raise
                if self._steps_aside:
                    raise _SteppedAside from None
                yield replay.release()
                continue
            finally:
                self._limit = None
            if not data:
                yield replay.end()
                return
            yield replay.feed(data)
            if pause := self._pauses.after(len(data)):
                await _rest(answer, pause)


class _SteppedAside(Exception):
    """The container has ended, and another request shall return the rest of its log."""


async def _rest(answer: aiohttp.ClientResponse, seconds: float) -> None:
    """Pause reading for a moment; the operating system buffers new data."""
    connection = answer.connection
    transport: Any = connection.transport if connection else None
    if transport is None:
        return  # the answer is complete
    # Pause below TLS: the TLS transport would still decrypt each piece as it comes. The transport
    # below has no public API; if it is not found, pause the TLS transport.
    inner: Any = getattr(transport, "_ssl_protocol", None)
    raw: Any = getattr(inner, "_transport", None) or transport
    raw.pause_reading()
    try:
        await asyncio.sleep(seconds)
    finally:
        raw.resume_reading()
