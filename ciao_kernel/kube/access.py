"""Which cluster, as whom, in which namespace: from kubeconfig or a pod's service account."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import kubeconfig
from ciao_kernel.redaction import origin

if TYPE_CHECKING:
    import aiohttp
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
        pem: Certificates and keys that no file holds, by the fields of the configuration that
            name files.
        due: When to read it again (seconds since the epoch): before what it holds ends.
    """

    configuration: Configuration
    namespace: str
    source: str
    context: str
    pem: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    due: float = math.inf

    @property
    def certified(self) -> bool:
        """Whether a certificate says who asks."""
        return bool(self.configuration.cert_file or self.pem.get("cert_file"))

    async def headers(self) -> dict[str, str]:
        """What proves in each request who sends it."""
        auth: Mapping[str, Any] = await self.configuration.auth_settings()
        # A token file may end in a line feed, which no header can hold.
        return {one["key"]: str(one["value"]).strip() for one in auth.values()}

    def options(self) -> dict[str, Any]:
        """What the connection of a request has to know."""
        found = {
            "server_hostname": self.configuration.tls_server_name,
            "proxy": self.configuration.proxy,
        }
        return {name: value for name, value in found.items() if value}

    def connections(self) -> aiohttp.ClientSession:
        """Make a pool of connections; whoever asks for it closes it.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        from kubernetes.aio.client.rest import RESTClientObject

        try:
            with self._files() as configuration:
                rest: Any = RESTClientObject(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None)
            raise ClusterFault(
                f"the certificates of {self.source} cannot be used: {why or type(error).__name__}.",
                "Fetch a new kubeconfig: a certificate or its key is damaged.",
            ) from None
        session: aiohttp.ClientSession = rest._create_pool_manager()
        session.trace_configs.append(_no_redirects())
        return session

    @contextlib.contextmanager
    def _files(self) -> Iterator[Configuration]:
        """The configuration with a file for each certificate, while they are read.

        Python reads a client's certificate from files only. None is left: what cleans /tmp would
        take it away, and a key is not to lie about.
        """
        if not self.pem:
            yield self.configuration
            return
        configuration = copy.copy(self.configuration)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # ours alone
            for name, data in self.pem.items():
                path = Path(folder, name)
                path.write_bytes(data)
                setattr(configuration, name, str(path))
            yield configuration


def _no_redirects() -> aiohttp.TraceConfig:
    """Refuse to be sent elsewhere: no API server does, but a proxy's login page would get it all.

    A WebSocket's handshake follows redirects, and has no option against it.
    """
    import aiohttp

    async def refuse(_: object, __: object, sent: aiohttp.TraceRequestRedirectParams) -> None:
        there = origin(sent.response.headers.get("Location", "")) or "another path"
        raise aiohttp.ClientError(f"it sends elsewhere: {there}")

    found = aiohttp.TraceConfig()
    found.on_request_redirect.append(refuse)
    found.freeze()
    return found


def configured(environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether there is a cluster to talk to: cheap, and asks nobody.

    A ``KUBECONFIG`` that names no file means one too: a slip in its path is told by
    :func:`load`, and does not make a job of the cluster a local one.
    """
    files = kubeconfig.named(environment) or kubeconfig.files(environment)
    return bool(files) or _in_cluster(environment)


def _in_cluster(environment: Mapping[str, str] | None = None) -> bool:
    variables = os.environ if environment is None else environment
    return bool(variables.get("KUBERNETES_SERVICE_HOST")) and kubeconfig.is_file(_ACCOUNT / "token")


async def load(context: str = "") -> Access:
    """Read the credentials.

    Called again when the server no longer believes them: exec plug-ins run again, and files
    that were replaced are read anew.

    Args:
        context: Of the kubeconfig; "" means its current one.

    Raises:
        ClusterFault: There are none, or they cannot be read; names the file.
    """
    if files := kubeconfig.files():
        configuration = _configuration()
        found = await kubeconfig.apply(files, context, configuration)
        source = f"context {found.name}"
        return Access(configuration, found.namespace, source, found.name, found.pem, found.due)
    if _in_cluster():
        if context:
            raise ClusterFault(
                f"there is no context {context}: this is a pod, and it has no kubeconfig.",
                "Leave %context and the setting out, or set KUBECONFIG.",
            )
        return _of_account()
    if named := kubeconfig.named():
        names = os.pathsep.join(map(str, named))
        raise ClusterFault(
            f"KUBECONFIG names {names}, and there is no such file.",
            "Correct it, or run the cell on this machine: %backend=local.",
        )
    raise ClusterFault(
        "no cluster is configured: there is no kubeconfig, and this is no pod.",
        "Set KUBECONFIG, or run the cell on this machine: %backend=local.",
    )


def _configuration() -> Configuration:
    from kubernetes.aio.client.configuration import Configuration

    made = Configuration()
    made.connection_pool_maxsize = 0  # a log stream a replica: no limit of our own
    # Python 3.13 asks for extensions that the authorities of many clusters lack. kubectl does not.
    made.disable_strict_ssl_verification = True
    return made


def _of_account() -> Access:
    """A pod's service account; the library reads its token again each minute."""
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    configuration = _configuration()
    loader: Any = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(_ACCOUNT / "token"), cert_filename=str(_ACCOUNT / "ca.crt")
    )
    try:
        loader.load_and_set(configuration)
    except Exception as error:  # a ConfigException, or what an unreadable file raises
        raise ClusterFault(
            f"the pod's service account cannot be used: {kubeconfig.first_line(error)}",
            "Is its token mounted? Set KUBECONFIG to use another identity.",
        ) from None
    namespace = _ACCOUNT / "namespace"
    own = namespace.read_text().strip() if kubeconfig.is_file(namespace) else ""
    return Access(configuration, own, "service account", "")
