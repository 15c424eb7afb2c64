"""An API server: its address, the authority that it is trusted by, and the way to it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel import proxies
from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube.kubeconfig import Entry
from ciao_kernel.redaction import origin

_EXTENSION = "client.authentication.k8s.io/exec"
"""Extension of a cluster that is meant for plug-ins."""
_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class Server:
    """An API server.

    Args:
        address: Its URL, without a slash at the end.
        authority: Certificates (PEM) that it is trusted by; empty for those of the system.
        verified: Whether its certificate is checked.
        name: Name in its certificate, if not that of the address.
        proxy_url: The kubeconfig's proxy; empty for the environment's.
        authority_file: File that the authority was read from, if any; somebody may renew it.
    """

    address: str
    authority: bytes = b""
    verified: bool = True
    name: str = ""
    proxy_url: str = field(default="", repr=False)  # may contain a password
    authority_file: Path | None = field(default=None, compare=False)

    @property
    def encrypted(self) -> bool:
        """Return whether requests are encrypted."""
        return self.address.startswith("https://")

    def proxy(self) -> str:
        """Return the address of the proxy for requests, or "".

        As in kubectl, NO_PROXY does not apply to a kubeconfig's proxy (client-go,
        tools/clientcmd/client_config.go: ``http.ProxyURL``).

        Raises:
            ClusterFault: The environment's proxy is not an HTTP proxy.
        """
        if self.proxy_url:
            return self.proxy_url
        found = proxies.proxy_of(self.address, general=False)
        if found and found.partition("://")[0].lower() not in _SCHEMES:
            raise ClusterFault(
                f"the proxy {origin(found) or 'of the environment'} is neither http:// nor "
                "https://.",
                "Change HTTPS_PROXY, or put the cluster's address into NO_PROXY.",
            )
        return found


def of_cluster(cluster: Entry) -> Server:
    """Return the server of a kubeconfig's cluster.

    Raises:
        ValueError: The cluster cannot be used; the message completes "the kubeconfig …".
        OSError: The file of its authority cannot be read.
    """
    address = cluster.text("server").rstrip("/")
    if not address:
        raise ValueError("its cluster has no server")
    if "://" not in address:
        # As in kubectl, even with an authority: client-go takes the scheme of an address before it
        # adds the authority (tools/clientcmd/client_config.go: ClientConfig).
        address = f"http://{address}"
    proxy = cluster.text("proxy-url")
    if proxy and proxy.partition("://")[0].lower() not in _SCHEMES:
        raise ValueError("its proxy-url is neither http:// nor https://")
    encrypted = address.startswith("https://")
    return Server(
        address=address,
        authority=cluster.content("certificate-authority") if encrypted else b"",
        verified=cluster.values.get("insecure-skip-tls-verify") is not True,
        name=cluster.text("tls-server-name"),
        proxy_url=proxy,
        authority_file=authority_file(cluster),
    )


def authority_file(cluster: Entry) -> Path | None:
    """Return the file of a cluster's authority; None if the kubeconfig has the data itself."""
    data = cluster.text("certificate-authority-data")
    return None if data else cluster.path("certificate-authority")


def for_plugin(server: Server, cluster: Entry) -> Mapping[str, Any]:
    """Return ``spec.cluster`` of an ExecCredential, the description of a server for a plug-in.

    The authority is always passed as data (client-go, rest/exec.go: ``ConfigToExecCluster``).
    """
    extensions = cluster.values.get("extensions") or ()
    found = {
        "server": cluster.text("server"),
        "tls-server-name": server.name,
        "insecure-skip-tls-verify": not server.verified,
        "certificate-authority-data": base64.b64encode(server.authority).decode(),
        "proxy-url": server.proxy_url,
        "disable-compression": cluster.values.get("disable-compression") is True,
    }
    config = next((e.get("extension") for e in extensions if e["name"] == _EXTENSION), None)
    return {key: value for key, value in found.items() if value} | {"config": config}
