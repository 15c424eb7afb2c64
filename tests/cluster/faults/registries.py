"""Further registries: with a password or with tokens, over http or over TLS of an own authority."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.commands import run
from tests.cluster.faults.authority import Authority
from tests.cluster.parts import ENVIRONMENT
from tests.cluster.waiting import until

_NODE = "/etc/kubernetes"  # where the node sees the cluster's `etc`


@dataclass(frozen=True)
class Account:
    """Somebody who may use a registry.

    Args:
        name: of the user.
        password: of the user.
        actions: what a token allows; a registry with passwords alone cannot tell them apart.
    """

    name: str
    password: str
    actions: Sequence[str] = ("pull", "push")


@dataclass(frozen=True)
class Kind:
    """What a registry is like.

    Args:
        name: of its parts, folder and storage.
        port: where it listens; its token server listens on the next one.
        auth: `basic`, `token`, or nothing.
        tls: whether it speaks TLS, with a certificate of an own authority.
    """

    name: str
    port: int
    auth: str = ""
    tls: bool = False


BASIC = Kind("registry-basic", 5001, "basic")
BASIC_TLS = Kind("registry-basic-tls", 5003, "basic", tls=True)
TOKEN = Kind("registry-token", 5005, "token")
TOKEN_TLS = Kind("registry-token-tls", 5007, "token", tls=True)
KINDS = (BASIC, BASIC_TLS, TOKEN, TOKEN_TLS)

OWNER = Account("owner", "secret of the owner")
READER = Account("reader", "secret of the reader", ("pull",))


class Registry:
    """A registry on the node, as a context manager. Its images stay until the cluster goes.

    Args:
        cluster: where.
        kind: what it is like.
        accounts: who may use it.
    """

    def __init__(
        self, cluster: Cluster, kind: Kind, accounts: Sequence[Account] = (OWNER, READER)
    ) -> None:
        self.kind, self.accounts = kind, accounts
        self.host = f"{cluster.at.address}:{kind.port}"
        self.url = f"{'https' if kind.tls else 'http'}://{self.host}"
        self._cluster = cluster
        self._etc = cluster.at.folder / "etc"
        self._authority = Authority(cluster.at, self._etc / "registries")

    @property
    def authority(self) -> Path:
        """The certificate that a client has to trust, if the registry speaks TLS."""
        return self._authority.certificate

    def context(self) -> ssl.SSLContext | None:
        """Return what a client of Python needs to trust it."""
        return ssl.create_default_context(cafile=str(self.authority)) if self.kind.tls else None

    def start(self) -> None:
        """Start it, let containerd know it, and wait until it answers."""
        folder = self._etc / "registries" / self.kind.name
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder)
        node, there = self._cluster.node, f"{_NODE}/registries/{self.kind.name}"
        if self.kind.auth == "token":
            argv = ["/usr/bin/python3", f"{there}/token_server.py", f"{there}/tokens.json"]
            node.launch(f"{self.kind.name}-tokens", argv, ENVIRONMENT)
        argv = ["docker-registry", "serve", f"{there}/config.json"]
        node.launch(self.kind.name, argv, ENVIRONMENT)
        self.trust()
        for name, port in self._parts().items():
            until(partial(self._listens, port), f"{name} to listen", 30)

    def stop(self) -> None:
        """End it; containerd forgets it. What was pushed is there when it starts again."""
        running = self._cluster.node.parts()
        for name in self._parts():
            if name in running and running[name]["code"] is None:
                self._cluster.kill(name)
        self.distrust()

    def trust(self) -> None:
        """Tell containerd how to reach it, with its authority: read at the next pull."""
        trusted = f'ca = "{_NODE}/registries/pki/ca.crt"\n' if self.kind.tls else ""
        hosts = self._etc / "certs.d" / self.host
        hosts.mkdir(exist_ok=True)
        (hosts / "hosts.toml").write_text(
            f'server = "{self.url}"\n[host."{self.url}"]\n'
            f'capabilities = ["pull", "resolve"]\n{trusted}'
        )

    def distrust(self) -> None:
        """Let containerd forget it: nodes that nobody has prepared."""
        shutil.rmtree(self._etc / "certs.d" / self.host, ignore_errors=True)

    def __enter__(self) -> Registry:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _parts(self) -> dict[str, int]:
        """Return the names of its processes, and the port of each."""
        parts = {self.kind.name: self.kind.port}
        return parts | (
            {f"{self.kind.name}-tokens": self.kind.port + 1} if self.kind.auth == "token" else {}
        )

    def _listens(self, port: int) -> bool:
        try:
            socket.create_connection((self._cluster.at.address, port), timeout=2).close()
        except OSError:
            return False
        return True

    def _write(self, folder: Path) -> None:
        address = self._cluster.at.address
        there = f"{_NODE}/registries/{self.kind.name}"
        http: dict[str, Any] = {"addr": f"{address}:{self.kind.port}"}
        tls = None
        if self.kind.tls:
            self._authority.sign(self.kind.name, [address])
            signed = f"{_NODE}/registries/pki/{self.kind.name}"
            tls = {"certificate": f"{signed}.crt", "key": f"{signed}.key"}
            http["tls"] = tls
        config: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {
                "filesystem": {"rootdirectory": f"/var/lib/registries/{self.kind.name}"},
                "delete": {"enabled": True},
            },
            "http": http,
        }
        if self.kind.auth == "basic":
            lines = [self._htpasswd(account) for account in self.accounts]
            (folder / "htpasswd").write_text("".join(lines))
            config["auth"] = {"htpasswd": {"realm": "registry", "path": f"{there}/htpasswd"}}
        elif self.kind.auth == "token":
            config["auth"] = {"token": self._tokens(folder, there, tls)}
        (folder / "config.json").write_text(json.dumps(config, indent=2))

    def _htpasswd(self, account: Account) -> str:
        argv = ["htpasswd", "-Bbn", "-C", "4", account.name, account.password]
        return self._cluster.node.run(argv).strip() + "\n"

    def _tokens(self, folder: Path, there: str, tls: dict[str, str] | None) -> dict[str, str]:
        """Write what the token server reads, and return what the registry has to know of it."""
        address, port = self._cluster.at.address, self.kind.port + 1
        if not (folder / "tokens.key").exists():
            run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365",
                 "-subj", "/CN=token-server", "-keyout", folder / "tokens.key",
                 "-out", folder / "tokens.crt"])  # fmt: skip
        shutil.copy(Path(__file__).with_name("token_server.py"), folder)
        settings = {
            "address": address,
            "port": port,
            "tls": tls,
            "issuer": "token-server",
            "service": self.host,
            "key": f"{there}/tokens.key",
            "certificate": f"{there}/tokens.crt",
            "accounts": {account.name: asdict(account) for account in self.accounts},
        }
        (folder / "tokens.json").write_text(json.dumps(settings, indent=2))
        return {
            "realm": f"{'https' if tls else 'http'}://{address}:{port}/token",
            "service": self.host,
            "issuer": "token-server",
            "rootcertbundle": f"{there}/tokens.crt",
        }


def pull_secret(host: str, account: Account, name: str = "pull") -> dict[str, Any]:
    """Return a Secret for `imagePullSecrets`.

    Args:
        host: host and port of the registry.
        account: whose password stands in it.
        name: of the Secret.
    """
    both = base64.b64encode(f"{account.name}:{account.password}".encode()).decode()
    entry = {"username": account.name, "password": account.password, "auth": both}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name},
        "stringData": {".dockerconfigjson": json.dumps({"auths": {host: entry}})},
    }
