"""Puts images into registries over HTTP: a tiny one of its own, or one of another registry."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import platform
import re
import secrets
import ssl
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urljoin

from tests.cluster import recipes
from tests.cluster.faults.registries import Account, Registry

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Client:
    """A client of a registry's HTTP API.

    Args:
        url: of the registry.
        account: who it is, or None for nobody.
        context: how to trust a registry with an own authority.
    """

    def __init__(
        self, url: str, account: Account | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self._url, self._account = url, account
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if context:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)
        self._authorization = ""

    def push(self, name: str, tag: str, config: bytes, layers: list[bytes]) -> str:
        """Push an image and return its digest."""
        for blob in [config, *layers]:
            where = self._call("POST", f"/v2/{name}/blobs/uploads/").headers["Location"]
            joint = "&" if "?" in where else "?"
            query = urlencode({"digest": _digest(blob)})
            self._call("PUT", f"{where}{joint}{query}", blob, "application/octet-stream")
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, config),
                "layers": [_descriptor(_LAYER, layer) for layer in layers],
            }
        ).encode()
        self._call("PUT", f"/v2/{name}/manifests/{tag}", manifest, _MANIFEST)
        return _digest(manifest)

    def manifest(self, name: str, tag: str) -> dict[str, Any]:
        """Return an image's manifest."""
        content = self._call("GET", f"/v2/{name}/manifests/{tag}", accept=_MANIFEST).body
        return dict(json.loads(content))

    def blob(self, name: str, digest: str) -> bytes:
        """Return a blob."""
        return self._call("GET", f"/v2/{name}/blobs/{digest}").body

    def _call(
        self, method: str, path: str, data: bytes | None = None, kind: str = "", accept: str = "*/*"
    ) -> _Answer:
        headers = {"Accept": accept} | ({"Content-Type": kind} if kind else {})
        try:
            return self._send(method, path, data, headers)
        except urllib.error.HTTPError as refused:
            if refused.code != 401 or not self._account:
                raise
            self._authorization = self._sign_in(refused.headers["WWW-Authenticate"])
            return self._send(method, path, data, headers)

    def _send(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> _Answer:
        url = urljoin(self._url, path)
        if self._authorization:
            headers = {**headers, "Authorization": self._authorization}
        request = urllib.request.Request(url, data, headers, method=method)
        with self._opener.open(request, timeout=30) as answer:
            return _Answer(answer.headers, answer.read())

    def _sign_in(self, challenge: str) -> str:
        """Return the header that answers a registry's 401."""
        assert self._account
        both = f"{self._account.name}:{self._account.password}"
        basic = f"Basic {base64.b64encode(both.encode()).decode()}"
        if challenge.lower().startswith("basic"):
            return basic
        asked = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        query = urlencode({name: asked[name] for name in ("service", "scope") if name in asked})
        request = urllib.request.Request(f"{asked['realm']}?{query}")
        request.add_header("Authorization", basic)
        with self._opener.open(request, timeout=30) as answer:
            return f"Bearer {json.load(answer)['token']}"


@dataclass(frozen=True)
class _Answer:
    headers: Mapping[str, str]
    body: bytes


def client(registry: Registry, account: Account | None = None) -> Client:
    """Return a client of a registry of ours."""
    return Client(registry.url, account, registry.context())


def push_tiny(client: Client, host: str, name: str) -> str:
    """Push an image of 2 MB with nothing but busybox, and return its full name.

    Each is another image: one that a node has once, it gives to pods without any secret.
    """
    mark = secrets.token_hex(4)
    layer = _busybox()
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {
            "Env": ["PATH=/bin"],
            "Cmd": ["/bin/busybox", "sleep", "1000"],
            "Labels": {"mark": mark},
        },
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    client.push(name, mark, json.dumps(config).encode(), [layer])
    return f"{host}/{name}:{mark}"


def copy(source: Client, target: Client, name: str, tag: str) -> str:
    """Copy an image with all its layers from a registry into another; return its digest there."""
    manifest = source.manifest(name, tag)
    layers = [source.blob(name, layer["digest"]) for layer in manifest["layers"]]
    return target.push(name, tag, source.blob(name, manifest["config"]["digest"]), layers)


def _busybox() -> bytes:
    content = (recipes.BASE.folder() / "usr/bin/busybox").read_bytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("bin/busybox")
        member.size, member.mode = len(content), 0o755
        tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(data), "size": len(data)}
