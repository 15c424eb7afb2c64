"""Which cluster, as whom, in which namespace: from kubeconfig or a pod's service account."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """Where requests go and what proves who sends them.

    Args:
        configuration: The client library's, with server, certificates and token.
        namespace: The one that the context or the service account names, if any.
        source: Where it was found, for messages: a context's name, or "service account".
        context: The kubeconfig's context, or "" in a pod.
    """

    configuration: Configuration
    namespace: str
    source: str
    context: str


def configured(environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether there is a cluster to talk to: cheap, and asks nobody."""
    return bool(kubeconfigs(environment)) or _in_cluster(environment)


def kubeconfigs(environment: Mapping[str, str] | None = None) -> list[Path]:
    """The kubeconfig files that exist, in the order of ``KUBECONFIG``; else ~/.kube/config."""
    named = (os.environ if environment is None else environment).get("KUBECONFIG", "")
    paths = [Path(text) for text in named.split(os.pathsep) if text]
    found = paths or [Path.home() / ".kube" / "config"]
    return [path.expanduser() for path in found if _is_file(path.expanduser())]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # in a folder that is somebody else's
        return False


def _in_cluster(environment: Mapping[str, str] | None = None) -> bool:
    variables = os.environ if environment is None else environment
    return bool(variables.get("KUBERNETES_SERVICE_HOST")) and (_ACCOUNT / "token").is_file()


async def load(context: str = "") -> Access:
    """Read the credentials.

    Called again when the server no longer believes them: exec plug-ins run again, and files
    that were replaced are read anew.

    Args:
        context: Of the kubeconfig; "" means its current one.

    Raises:
        ClusterFault: There are none, or they cannot be read; names the file.
    """
    from kubernetes.aio import config
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    configuration = Configuration()
    configuration.connection_pool_maxsize = 0  # a log stream a replica: no limit of our own
    files = kubeconfigs()
    if not files:
        if not _in_cluster():
            raise ClusterFault(
                "no cluster is configured: there is no kubeconfig, and this is no pod.",
                "Set KUBECONFIG, or run the cell on this machine: %backend=local.",
            )
        loader: Any = InClusterConfigLoader(  # type: ignore[no-untyped-call]
            token_filename=str(_ACCOUNT / "token"), cert_filename=str(_ACCOUNT / "ca.crt")
        )
        try:
            loader.load_and_set(configuration)
        except Exception as error:  # a ConfigException, or what an unreadable file raises
            raise ClusterFault(
                f"the pod's service account cannot be used: {_first_line(error)}",
                "Is its token mounted? Set KUBECONFIG to use another identity.",
            ) from None
        namespace = _ACCOUNT / "namespace"
        own = namespace.read_text().strip() if namespace.is_file() else ""
        return Access(configuration, own, "service account", "")
    shown = os.pathsep.join(str(path) for path in files)
    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]
            shown, context=context or None, client_configuration=configuration, persist_config=False
        )
        current = loader.current_context
        namespace_named = (current.get("context") or {}).get("namespace") or ""
    except Exception as error:  # the library raises whatever a broken file makes it trip over
        raise ClusterFault(
            f"the kubeconfig {shown} cannot be used: {_first_line(error)}",
            f"`kubectl config get-contexts` shows what is in it{_asked(context)}.",
        ) from None
    return Access(configuration, namespace_named, f"context {current['name']}", current["name"])


def _asked(context: str) -> str:
    return f"; asked for was {context!r}" if context else ""


def _first_line(error: Exception) -> str:
    """The library's words up to the first thing that it quotes: that may be a token."""
    first = (str(error).strip().splitlines() or [""])[0]
    return re.split(r"[{\[]", first)[0].strip() or type(error).__name__
