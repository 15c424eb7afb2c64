"""Access to a cluster: server, identity and namespace, from kubeconfig or a service account."""

from __future__ import annotations

import logging
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import configured, identity, kubeconfig, server
from ciao_kernel.kube.identity import Identity
from ciao_kernel.kube.kubeconfig import Versions
from ciao_kernel.kube.server import Server
from ciao_kernel.redaction import mask, origin

if TYPE_CHECKING:
    import aiohttp
    from multidict import CIMultiDict


_log = logging.getLogger(__name__)

_BUFFER = 2 << 20
"""Bytes of an answer that are read ahead: one event of a watch may be this large."""
_KEPT = 60.0
"""Seconds for which a connection without a request stays open, for the next edit of a cell. An API
server closes it after 90 (its IdleTimeout in k8s.io/apiserver, pkg/server/secure_serving.go)."""


@dataclass(frozen=True, slots=True)
class Access:
    """Server and identity for requests.

    Args:
        server: The API server.
        identity: The user.
        namespace: Namespace of the context or the service account, if any.
        source: Origin of the credentials, for messages: a context's name, or "service account".
        context: The kubeconfig's context, or "" in a pod.
        versions: Versions of the kubeconfig files and of the server's authority file when they were
            read.
    """

    server: Server
    identity: Identity
    namespace: str
    source: str
    context: str
    versions: Versions = field(default=(), compare=False)

    @property
    def certified(self) -> bool:
        """Return whether a client certificate identifies the user."""
        return bool(self.identity.certificate)

    def changed(self) -> bool:
        """Return whether the files that tell the server have changed since they were read."""
        files = kubeconfig.files() if self.context else []
        return bool(self.versions) and _versions(files, self.server) != self.versions

    def headers(self) -> CIMultiDict[str]:
        """Return the headers of a request that say who the user is."""
        from multidict import CIMultiDict

        return CIMultiDict(self.identity.headers())

    def options(self) -> dict[str, Any]:
        """Return the connection options of a request.

        Raises:
            ClusterFault: The environment's proxy cannot be used.
        """
        found = {"server_hostname": self.server.name, "proxy": self.server.proxy()}
        return {name: value for name, value in found.items() if value}

    def connections(self) -> aiohttp.ClientSession:
        """Create a connection pool; the caller closes it.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        import aiohttp

        trust = self.trust()
        # No limit: each replica has its own log stream. The environment is not trusted: a password
        # in ~/.netrc is not meant for an API server, and options() names the proxy.
        connector = aiohttp.TCPConnector(limit=0, ssl=trust, keepalive_timeout=_KEPT)
        return aiohttp.ClientSession(
            connector=connector, read_bufsize=_BUFFER, trace_configs=[_no_redirects()]
        )

    def trust(self) -> ssl.SSLContext:
        """Create a TLS context, with the same rules as kubectl.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        try:
            return self._trust()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None)
            raise ClusterFault(
                f"the certificates of {self.source} cannot be used: {why or type(error).__name__}.",
                "Fetch a new kubeconfig: a certificate or its key is damaged.",
            ) from None

    def _trust(self) -> ssl.SSLContext:
        authority = self.server.authority.decode("ascii", "replace").replace("\ufffd", "?")
        found = ssl.create_default_context(cadata=authority or None)
        # Python 3.13 requires extensions that the CA certificates of many clusters lack, and older
        # versions do not trust an intermediate authority alone; Go does not require either.
        found.verify_flags &= ~ssl.VERIFY_X509_STRICT
        found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if not self.server.verified:
            found.check_hostname = False
            found.verify_mode = ssl.CERT_NONE
        if self.certified:
            # Python reads a client's certificate from files only. They are removed right after
            # reading: a key must not stay on disk.
            import tempfile

            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # ours alone
                certificate, key = Path(folder, "certificate"), Path(folder, "key")
                certificate.write_bytes(self.identity.certificate)
                key.write_bytes(self.identity.key)
                # With an empty password: OpenSSL would ask for one in the terminal.
                found.load_cert_chain(certificate, key, password="")
        return found


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
        return await _of_files(files, context)
    if configured.in_cluster():
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
            "Correct it, or unset it to use ~/.kube/config.",
            unreachable=True,
        )
    raise ClusterFault(
        "no cluster is configured: there is no kubeconfig, and this is not a pod.",
        "Set KUBECONFIG, or create ~/.kube/config.",
        unreachable=True,
    )


async def _of_files(files: list[Path], context: str) -> Access:
    """Return access by a context of kubeconfig files."""
    shown = os.pathsep.join(map(str, files))
    versions = kubeconfig.versions(files)  # before they are read: no change is missed
    try:
        chosen = kubeconfig.read(files, context)
        if authority := server.authority_file(chosen.cluster):
            versions += kubeconfig.versions([authority])  # before it is read, too
        there = server.of_cluster(chosen.cluster)
        who = await identity.of_user(
            chosen.user, server.for_plugin(there, chosen.cluster), encrypted=there.encrypted
        )
    except ClusterFault:
        raise
    except Exception as error:  # a broken file can cause any exception
        _log.debug("the kubeconfig %s cannot be used", shown, exc_info=True)
        view = f"`kubectl config view{f' --context={context}' if context else ''}`"
        raise ClusterFault(
            f"the kubeconfig {shown} cannot be used: {_first_line(error)}.",
            f"{view} shows its contents.",
        ) from None
    source = f"context {chosen.name}"
    return Access(there, who, chosen.namespace, source, chosen.name, versions)


def _of_account() -> Access:
    """Return access by the pod's service account, whose token is read again for each request."""
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    token, authority = configured.ACCOUNT / "token", configured.ACCOUNT / "ca.crt"
    versions = kubeconfig.versions([authority])
    try:
        there = Server(
            f"https://{f'[{host}]' if ':' in host else host}:{int(port)}",
            authority.read_bytes(),
            authority_file=authority,
        )
        who = Identity(identity.bearer(token.read_text()), token)
    except (OSError, ValueError) as error:
        _log.debug("the service account cannot be used", exc_info=True)
        raise ClusterFault(
            f"the pod's service account cannot be used: {_first_line(error)}.",
            "Is its token mounted? Set KUBECONFIG to use another identity.",
        ) from None
    namespace = configured.ACCOUNT / "namespace"
    own = namespace.read_text().strip() if kubeconfig.is_file(namespace) else ""
    return Access(there, who, own, "service account", "", versions)


def _versions(files: list[Path], there: Server) -> Versions:
    return kubeconfig.versions([*files, *filter(None, [there.authority_file])])


def _first_line(error: Exception) -> str:
    """Return a message up to its first quotation, which may be a token."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    first = (str(error).strip().splitlines() or [""])[0]
    return mask(re.split(r"[{\[]", first)[0]).strip().rstrip(".") or type(error).__name__
