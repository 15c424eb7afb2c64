"""Reads the files of ``%output`` out of the log of a pod's sidecar (``by:log``).

It needs no right but that for logs, and works as long as the pod exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.output import output_sidecar, output_state
from ciao_kernel.config import Settings
from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output.log_lines import LogReader
from ciao_kernel.kube.client import Client
from ciao_kernel.kube.logs import ContainerLog, Gap
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.model.queries import Streams

_MORE = (
    "More needs the right to create and get pods/exec (deploy/rbac/exec-role.yaml); or let the "
    "program write to a %volume."
)


class OutputLog:
    """The log of the sidecar of one pod; :meth:`execute` takes the place of a command in it.

    Args:
        client: The API server.
        namespace: Namespace of the pod.
        view: The pod.
    """

    def __init__(self, client: Client, namespace: str, view: LatestPod) -> None:
        self._client, self._namespace, self._view = client, namespace, view
        pod = view.pod()
        self._name = str(pod["metadata"]["name"]) if pod else ""

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        """Pass on what the sidecar has written; the command and the input have no meaning here.

        Raises:
            BackendError: The log does not have all of it.
        """
        reader, gap = LogReader(), ""
        log = ContainerLog(
            self._client,
            self._namespace,
            self._name,
            output_state.LOG_NAME,
            self._view,
            pause=0.0,
        )
        async with contextlib.aclosing(log.read()) as pieces:
            async for piece in pieces:
                if isinstance(piece, Gap):
                    gap = f" ({piece.text.rstrip('.')})"
                else:
                    reader.take(piece.data)
                if reader.whole:
                    break
        reader.pass_on(streams.out, gap)
        return 0


def log_words(settings: Settings) -> dict[str, str]:
    """Return the words about the limit of files that come by the log, for the transfer."""
    if output_sidecar.limit(settings, OutputWay.LOG) != replica_files.LOG_MOST:
        return {}  # it is the setting
    return {"limit_name": "the log carries at most", "hint": _MORE}
