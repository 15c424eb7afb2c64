"""Access to a cluster: server, identity and namespace, from kubeconfig or a service account."""

from __future__ import annotations

import contextlib
import copy
import logging
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

_log = logging.getLogger(__name__)

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """Server address and credentials for requests.

    Args:
        configuration: Configuration of the client library: server, certificates and token.
        namespace: Namespace of the context or the service account, if any.
        source: Origin of the credentials, for messages: a context's name, or "service account".
        context: The kubeconfig's context, or "" in a pod.
        pem: Certificates and keys that are in no file, by the configuration's field for the file.
        due: Time to read the credentials again (seconds since the epoch), before they expire.
    """

    configuration: Configuration
    namespace: str
    source: str
    context: str
    pem: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    due: float = math.inf

    @property
    def certified(self) -> bool:
        """Return whether a client certificate identifies the user."""
        return bool(self.configuration.cert_file or self.pem.get("cert_file"))

    async def headers(self) -> dict[str, str]:
        """Return the authentication headers of a request."""
        auth: Mapping[str, Any] = await self.configuration.auth_settings()
        # A token file may end in a line feed, which is not allowed in a header.
        return {one["key"]: str(one["value"]).strip() for one in auth.values()}

    def options(self) -> dict[str, Any]:
        """Return the connection options of a request."""
        found = {
            "server_hostname": self.configuration.tls_server_name,
            "proxy": self.configuration.proxy,
        }
        return {name: value for name, value in found.items() if value}

    def connections(self) -> aiohttp.ClientSession:
        """Create a connection pool; the caller closes it.

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
        """Provide the configuration with a temporary file for each certificate.

        Python reads a client's certificate from files only. The files are removed right after
        reading: a cleanup of /tmp could delete them later, and a key must not stay on disk.
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
    """Refuse all redirects: an API server sends none, and a login page would get the credentials.

    A WebSocket handshake follows redirects, and has no option to disable this.
    """
    import aiohttp

    async def refuse(_: object, __: object, sent: aiohttp.TraceRequestRedirectParams) -> None:
        there = origin(sent.response.headers.get("Location", "")) or "another path"
        raise aiohttp.ClientError(f"it redirects to {there}")

    found = aiohttp.TraceConfig()
    found.on_request_redirect.append(refuse)
    found.freeze()
    return found


def configured(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether a cluster is configured: cheap, and sends no request.

    The result is also true if ``KUBECONFIG`` names a file that does not exist. A typo in the path
    then becomes an error in :func:`load`, and does not turn a cluster job into a local job.
    """
    files = kubeconfig.named(environment) or kubeconfig.files(environment)
    return bool(files) or _in_cluster(environment)


def _in_cluster(environment: Mapping[str, str] | None = None) -> bool:
    variables = os.environ if environment is None else environment
    return bool(variables.get("KUBERNETES_SERVICE_HOST")) and kubeconfig.is_file(_ACCOUNT / "token")


async def load(context: str = "") -> Access:
    """Read the credentials.

    Called again when the server no longer accepts them: exec plug-ins run again, and replaced
    files are read again.

    Args:
        context: Context of the kubeconfig; "" means the current context.

    Raises:
        ClusterFault: There are no credentials, or they cannot be read; the message names the file.
    """
    if files := kubeconfig.files():
        configuration = _configuration()
        found = await kubeconfig.apply(files, context, configuration)
        source = f"context {found.name}"
        return Access(configuration, found.namespace, source, found.name, found.pem, found.due)
    if _in_cluster():
        if context:
            raise ClusterFault(
                f"there is no context {context}: this pod has no kubeconfig.",
                "Remove %context and the setting context, or set KUBECONFIG.",
            )
        return _of_account()
    if named := kubeconfig.named():
        names = os.pathsep.join(map(str, named))
        raise ClusterFault(
            f"KUBECONFIG names {names}, but there is no such file.",
            "Correct it, or run the cell on this machine: %backend=local.",
        )
    raise ClusterFault(
        "no cluster is configured: there is no kubeconfig, and this is not a pod.",
        "Set KUBECONFIG, or run the cell on this machine: %backend=local.",
    )


def _configuration() -> Configuration:
    from kubernetes.aio.client.configuration import Configuration

    made = Configuration()
    made.connection_pool_maxsize = 0  # no limit: each replica has its own log stream
    # Python 3.13 requires extensions that the CA certificates of many clusters lack; kubectl does
    # not require them.
    made.disable_strict_ssl_verification = True
    return made


def _of_account() -> Access:
    """Return access by the pod's service account; the library rereads its token every minute."""
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    configuration = _configuration()
    loader: Any = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(_ACCOUNT / "token"), cert_filename=str(_ACCOUNT / "ca.crt")
    )
    try:
        loader.load_and_set(configuration)
    except Exception as error:  # a ConfigException, or an error of an unreadable file
        _log.debug("the service account cannot be used", exc_info=True)
        raise ClusterFault(
            f"the pod's service account cannot be used: {kubeconfig.first_line(error)}",
            "Is its token mounted? Set KUBECONFIG to use another identity.",
        ) from None
    namespace = _ACCOUNT / "namespace"
    own = namespace.read_text().strip() if kubeconfig.is_file(namespace) else ""
    return Access(configuration, own, "service account", "")
