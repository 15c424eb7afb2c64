"""One authority, the parts' certificates, and the kubeconfigs that hold them."""

import base64
import json
import secrets
from pathlib import Path

from tests.cluster.commands import run
from tests.cluster.layout import Layout

_CLIENTS = {
    "admin": "/O=system:masters/CN=ciao-admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
}


def issue(at: Layout) -> None:
    """Write all certificates and kubeconfigs of a cluster into its `pki` folder."""
    at.pki.mkdir(mode=0o700, parents=True)
    _key(at.pki / "ca.key")
    run(["openssl", "req", "-x509", "-new", "-key", at.pki / "ca.key", "-days", "365",
         "-subj", "/CN=ciao-cluster-ca", "-out", at.pki / "ca.crt"])  # fmt: skip
    _key(at.pki / "service-account.key")
    run(["openssl", "pkey", "-in", at.pki / "service-account.key", "-pubout",
         "-out", at.pki / "service-account.pub"])  # fmt: skip
    for name, subject in _CLIENTS.items():
        sign(at, name, subject)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost",
             f"kubernetes.default.svc.{at.domain}"]  # fmt: skip
    sign(at, "apiserver", "/CN=kube-apiserver", names, ["127.0.0.1", at.api_service, at.address])
    sign(at, "kubelet", f"/O=system:nodes/CN=system:node:{at.node}", [at.node], [at.address])
    for name in ("admin", "controller-manager", "scheduler", "proxy", "kubelet"):
        write_kubeconfig(at, at.pki / f"{name}.kubeconfig", name)
    write_kubeconfig(at, at.kubeconfig, "admin")
    issue_front(at)


def issue_front(at: Layout) -> None:
    """Write the certificate by which servers of further APIs know the API server, unless it exists.

    It has an authority of its own: with that of the clients no client would be known any more.
    """
    if (at.pki / "front.crt").exists():
        return
    _key(at.pki / "front-ca.key")
    run(["openssl", "req", "-x509", "-new", "-key", at.pki / "front-ca.key", "-days", "365",
         "-subj", "/CN=ciao-front-ca", "-out", at.pki / "front-ca.crt"])  # fmt: skip
    sign(at, "front", "/CN=front-proxy-client", authority="front-ca")


def sign(
    at: Layout,
    name: str,
    subject: str,
    names: list[str] | None = None,
    addresses: list[str] | None = None,
    authority: str = "ca",
) -> None:
    """Write NAME.key and NAME.crt, signed by an authority, good for both directions."""
    _key(at.pki / f"{name}.key")
    others = [f"DNS:{n}" for n in names or ()] + [f"IP:{a}" for a in addresses or ()]
    extensions = at.pki / f"{name}.ext"
    extensions.write_text(
        "keyUsage=digitalSignature,keyEncipherment\nextendedKeyUsage=serverAuth,clientAuth\n"
        + (f"subjectAltName={','.join(others)}\n" if others else "")
    )
    request = run(["openssl", "req", "-new", "-key", at.pki / f"{name}.key", "-subj", subject])
    run(
        ["openssl", "x509", "-req", "-CA", at.pki / f"{authority}.crt",
         "-CAkey", at.pki / f"{authority}.key",
         # A number of its own, not the next one of a file that two tests may change at once.
         "-set_serial", f"0x{secrets.token_hex(16)}", "-days", "365", "-extfile", extensions,
         "-out", at.pki / f"{name}.crt"],
        text=request,
    )  # fmt: skip
    extensions.unlink()


def write_kubeconfig(at: Layout, file: Path, name: str) -> None:
    """Write a kubeconfig for a certificate that `sign` made. Certificates stand in it: one file."""
    user = {
        "client-certificate-data": _encoded(at.pki / f"{name}.crt"),
        "client-key-data": _encoded(at.pki / f"{name}.key"),
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(kubeconfig(at, at.server, user), indent=2))


def kubeconfig(
    at: Layout, server: str, user: dict[str, str], namespace: str = "default"
) -> dict[str, object]:
    """Return the content of a kubeconfig with one cluster, one user and one context."""
    cluster = {"server": server, "certificate-authority-data": _encoded(at.pki / "ca.crt")}
    context = {"cluster": "ciao", "user": "ciao", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "ciao", "cluster": cluster}],
        "users": [{"name": "ciao", "user": user}],
        "contexts": [{"name": "ciao", "context": context}],
        "current-context": "ciao",
    }


def _key(file: Path) -> None:
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", file])
    file.chmod(0o600)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
