"""A registry on the loopback that can be made to misbehave in every way that was seen.

It keeps to the specification and judges what it gets: digests, manifests whose parts are missing.
https://github.com/opencontainers/distribution-spec/blob/main/spec.md
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

PASSWORD = "hunter2 of ü"
REFRESH = "refresh-hunter2"
USER = "jane"
OCI = "application/vnd.oci.image"
MANIFEST, INDEX = f"{OCI}.manifest.v1+json", f"{OCI}.index.v1+json"


@dataclass
class Behaviour:
    """How a registry behaves; plain and well unless something is set."""

    auth: str = ""
    """`basic`, `token`, or nothing."""
    rights: dict[str, set[str]] = field(default_factory=dict)
    """What the user may do with a repository; with those that are not named, everything."""
    anonymous: set[str] = field(default_factory=set)
    """What a token lets anybody do."""
    hides_new: bool = False
    """A token for a repository that does not exist has no rights, unless it is to push."""
    first_scope_only: bool = False
    token_seconds: int = 300
    realm: str = ""
    mount: int = 201
    relative: bool = False
    query: bool = True
    storage: str = ""
    """Where blobs are sent for; "" gives them itself."""
    digest_header: bool = True
    location: Callable[[str], str] = lambda place: place
    dies_at: int = 0
    """Bytes of an upload after which the connection is reset."""
    deaths: int = 1
    cuts: list[int] = field(default_factory=list)
    """Bytes of each further request with a body after which the connection is reset."""
    keeps: bool = True
    """A cut upload keeps what came, and says how much; else it is gone."""
    parts: bool = True
    """A part of a blob may be asked for."""
    early: int = 0
    """Status that an upload is answered with before its body is read, as servers in Go do."""
    deletes: int = 202
    """Status of the deletion of a manifest."""
    tags_stay: bool = False
    """Tags outlive the deletion of their digest, as in the registry of `crane registry serve`."""
    blobs_break: int = 0
    """How many times a blob that is asked for ends half way."""
    before: Callable[[Handler], bool] = lambda handler: False
    """Answers instead of the registry, where it returns true."""


@dataclass
class Seen:
    """A request that came.

    Args:
        line: Method and path with its query.
        authorization: What it said of who asks.
        size: Bytes of its body.
    """

    line: str
    authorization: str
    size: int


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeRegistry  # type: ignore[assignment]

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            super().handle_one_request()
            return
        self.close_connection = True

    def do_GET(self) -> None:
        how, fake = self.server.how, self.server
        length = int(self.headers.get("Content-Length") or 0)
        fake.seen.append(
            Seen(f"{self.command} {self.path}", self.headers.get("Authorization") or "", length)
        )
        self.parts = urlsplit(self.path)
        self.query = dict(parse_qsl(self.parts.query, keep_blank_values=True))
        if "/blobs/uploads/" in self.path and self.command == "PUT" and how.dies_at and how.deaths:
            how.deaths -= 1
            self.rfile.read(min(how.dies_at, length))
            self.reset()
            return
        if "/blobs/uploads/" in self.path and length > 1000 and how.cuts:
            self.cut(self.rfile.read(min(how.cuts.pop(0), length)))
            return
        if "/blobs/uploads/" in self.path and self.command == "PUT" and how.early:
            self.say(how.early, Connection="close")
            self.connection.shutdown(socket.SHUT_WR)
            self.close_connection = True
            return
        self.body = self.rfile.read(length)
        if len(self.body) < length:  # the client went away
            self.cut(self.body)
            return
        if how.before(self):
            return
        if self.parts.path == "/token":
            self.token()
            return
        found = re.fullmatch(r"/v2/(.+)/(manifests|blobs|blobs/uploads)/([^/]*)", self.parts.path)
        if not found:
            self.say(404, b"404 page not found\n", kind="text/plain")
            return
        repository, kind, name = found.groups()
        action = {"GET": "pull", "HEAD": "pull", "DELETE": "delete"}.get(self.command, "push")
        if kind == "blobs/uploads" and action == "delete":
            action = "push"
        if not self.may(repository, action):
            return
        getattr(self, f"{self.command.lower()}_{kind.replace('/', '_')}")(repository, name)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def delete_manifests(self, repository: str, name: str) -> None:
        if self.server.how.deletes != 202:
            self.error(self.server.how.deletes, "UNSUPPORTED")
            return
        kept = {
            key: one
            for key, one in self.server.manifests.items()
            if key[0] != repository
            or name not in (key[1], "" if self.server.how.tags_stay else digest(one[1]))
        }
        self.server.manifests = kept
        self.say(202)

    def delete_blobs_uploads(self, repository: str, name: str) -> None:
        self.server.uploads.pop(name, None)
        self.say(204)

    # Who asks.

    def basic(self) -> str:
        """The user of a Basic header: "" for nobody, "?" for a wrong password."""
        kind, _, coded = (self.headers.get("Authorization") or "").partition(" ")
        if kind != "Basic":
            return ""
        return USER if base64.b64decode(coded).decode() == f"{USER}:{PASSWORD}" else "?"

    def may(self, repository: str, action: str) -> bool:
        how = self.server.how
        wanted = [(repository, action)]
        if origin := self.query.get("from"):
            wanted.append((origin, "pull"))
        if how.auth == "basic" and self.basic() != USER:
            self.error(401, "UNAUTHORIZED", **{"WWW-Authenticate": 'Basic realm="fake"'})
            return False
        if how.auth == "basic":
            for one, what in wanted:
                if what not in how.rights.get(one, {"pull", "push", "delete"}):
                    self.error(403, "DENIED", f"no {what} on {one}")
                    return False
        if how.auth == "token":
            held = self.server.tokens.get((self.headers.get("Authorization") or "")[7:], set())
            if not {(one, what) for one, what in wanted} <= held:
                scope = " ".join(f"repository:{one}:{what}" for one, what in wanted)
                realm = how.realm or f"{self.server.url}/token"
                asks = f'Bearer realm="{realm}",service="fake",scope="{scope}"'
                if held:
                    asks += ',error="insufficient_scope"'
                self.error(401, "UNAUTHORIZED", **{"WWW-Authenticate": asks})
                return False
        return True

    def token(self) -> None:
        how = self.server.how
        if self.command == "POST":
            form = {name: values[0] for name, values in parse_qs(self.body.decode()).items()}
            right = (form.get("grant_type"), form.get("refresh_token")) == (
                "refresh_token",
                REFRESH,
            )
            user, scopes = USER if right else "?", form.get("scope", "").split()
        else:
            user = self.basic()
            scopes = " ".join(v for n, v in parse_qsl(self.parts.query) if n == "scope").split()
        if user == "?":
            self.error(401, "UNAUTHORIZED", "incorrect username or password")
            return
        held = set()
        for scope in scopes[:1] if how.first_scope_only else scopes:
            _, name, actions = scope.split(":")
            allowed = how.rights.get(name, {"pull", "push", "delete"}) if user else how.anonymous
            exists = any(one == name for one, _ in self.server.manifests)
            if how.hides_new and not exists and "push" not in actions:
                allowed = set()
            held |= {(name, one) for one in actions.split(",") if one in allowed}
        token = secrets.token_hex(8)
        self.server.tokens[token] = held or {("nothing", "")}
        self.say(200, json.dumps({"token": token, "expires_in": how.token_seconds}).encode())

    # Manifests.

    def get_manifests(self, repository: str, name: str) -> None:
        found = self.server.manifests.get((repository, name))
        if not found:
            self.error(404, "MANIFEST_UNKNOWN")
            return
        kind, raw = found
        told = {"Docker-Content-Digest": digest(raw)} if self.server.how.digest_header else {}
        self.say(200, raw, kind=kind, **told)

    head_manifests = get_manifests

    def put_manifests(self, repository: str, name: str) -> None:
        body = json.loads(self.body)
        if body.get("mediaType") != self.headers["Content-Type"]:
            self.error(400, "MANIFEST_INVALID")
            return
        for part in [body["config"], *body["layers"]]:
            known = self.server.blobs.get((repository, part["digest"]))
            if not part.get("urls") and (known is None or len(known) != part["size"]):
                self.error(400, "MANIFEST_BLOB_UNKNOWN", "blob unknown to registry")
                return
        for one in (name, digest(self.body)):
            self.server.manifests[repository, one] = (body["mediaType"], self.body)
        told = {"Docker-Content-Digest": digest(self.body)} if self.server.how.digest_header else {}
        self.say(201, **told)

    # Blobs.

    def get_blobs(self, repository: str, name: str) -> None:
        found = self.server.blobs.get((repository, name))
        how = self.server.how
        if found is None:
            self.error(404, "BLOB_UNKNOWN")
        elif how.storage and self.command == "GET":
            self.say(307, Location=f"{how.storage}/v2/{repository}/blobs/{name}?signed=1")
        elif self.headers.get("Range") and how.parts:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            told = {"Content-Range": f"bytes {begin}-{len(found) - 1}/{len(found)}"}
            self.say(206, found[begin:], **told)
        elif how.blobs_break and self.command == "GET" and len(found) > 1000:
            how.blobs_break -= 1
            self.send_response(200)
            self.send_header("Content-Length", str(len(found)))
            self.end_headers()
            self.wfile.write(found[: len(found) // 2])
            self.wfile.flush()
            self.reset()
        else:
            self.say(200, found)

    head_blobs = get_blobs

    def post_blobs_uploads(self, repository: str, name: str) -> None:
        how, fake = self.server.how, self.server
        if origin := self.query.get("from"):
            wanted = self.query["mount"]
            if how.mount == 201 and (origin, wanted) in fake.blobs:
                fake.blobs[repository, wanted] = fake.blobs[origin, wanted]
                self.say(201)
                return
            if how.mount not in (201, 202):
                self.error(how.mount, "UNAUTHORIZED")
                return
        upload = secrets.token_hex(4)
        fake.uploads[upload] = bytearray()
        self.say(202, Location=self.place(repository, upload))

    def place(self, repository: str, upload: str) -> str:
        """The address of an upload; its state changes with each piece, as Docker's does."""
        how, fake = self.server.how, self.server
        state = f"?_state={len(fake.uploads[upload])}%3D" if how.query else ""
        place = f"/v2/{repository}/blobs/uploads/{upload}{state}"
        return how.location(place if how.relative else fake.url + place)

    def in_order(self, upload: str) -> bool:
        """Whether the body begins where the upload has ended so far."""
        begin = (self.headers.get("Content-Range") or "0-").partition("-")[0]
        came = self.server.uploads.get(upload)
        return came is not None and (self.command == "PUT" or len(came) == int(begin))

    def get_blobs_uploads(self, repository: str, name: str) -> None:
        if name not in self.server.uploads:
            self.error(404, "BLOB_UPLOAD_UNKNOWN")
            return
        end = max(0, len(self.server.uploads[name]) - 1)
        self.say(204, Location=self.place(repository, name), Range=f"0-{end}")

    def patch_blobs_uploads(self, repository: str, name: str) -> None:
        if not self.in_order(name):
            self.error(416 if name in self.server.uploads else 404, "BLOB_UPLOAD_INVALID")
            return
        self.server.uploads[name] += self.body
        end = len(self.server.uploads[name]) - 1
        self.say(202, Location=self.place(repository, name), Range=f"0-{end}")

    def put_blobs_uploads(self, repository: str, name: str) -> None:
        fake = self.server
        if name not in fake.uploads:
            self.error(404, "BLOB_UPLOAD_UNKNOWN")
            return
        whole = bytes(fake.uploads.pop(name) + self.body)
        if digest(whole) != self.query["digest"]:
            self.error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
            return
        fake.blobs[repository, self.query["digest"]] = whole
        self.say(201)

    # Answers.

    def error(self, status: int, code: str, message: str = "", **headers: str) -> None:
        body = json.dumps({"errors": [{"code": code, "message": message or code.lower()}]})
        self.say(status, body.encode(), **headers)

    def say(
        self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def cut(self, came: bytes) -> None:
        """End the connection in the middle of an upload."""
        upload = self.parts.path.rpartition("/")[2]
        if self.server.how.keeps and self.in_order(upload):
            self.server.uploads[upload] += came
        else:
            self.server.uploads.pop(upload, None)
        self.reset()

    def reset(self) -> None:
        """End the connection as a killed process does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        with contextlib.suppress(OSError):
            self.wfile.close()
        self.connection.close()

    def log_message(self, *args: Any) -> None: ...


class FakeRegistry(ThreadingHTTPServer):
    """The registry: what it has, and what came.

    Args:
        how: It behaves.
        tls: Its certificate and key; None speaks http.
        address: Where it listens.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self, how: Behaviour, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
    ) -> None:
        super().__init__((address, 0), Handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.how = how
        self.host = f"{address}:{self.server_address[1]}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.uploads: dict[str, bytearray] = {}
        """What came of the open ones."""
        self.tokens: dict[str, set[tuple[str, str]]] = {}
        self.seen: list[Seen] = []

    def handle_error(self, request: Any, client_address: Any) -> None: ...

    def push(self, repository: str, tag: str, raw: bytes, kind: str = MANIFEST) -> str:
        """Put a manifest there, as it is."""
        for name in (tag, digest(raw)):
            self.manifests[repository, name] = (kind, raw)
        return digest(raw)

    def put(self, repository: str, blob: bytes) -> dict[str, Any]:
        """Put a blob there, and return how a manifest names it."""
        self.blobs[repository, digest(blob)] = blob
        return {"digest": digest(blob), "size": len(blob)}

    def lines(self) -> list[str]:
        """The requests that came, without their queries; the next call begins anew."""
        lines = [seen.line.partition("?")[0] for seen in self.seen]
        self.seen.clear()
        return lines


@contextlib.contextmanager
def serving(
    how: Behaviour | None = None, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
) -> Iterator[FakeRegistry]:
    """A registry for as long as the block runs."""
    fake = FakeRegistry(how or Behaviour(), tls, address)
    thread = threading.Thread(target=fake.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        fake.shutdown()
        thread.join()
        fake.server_close()


def digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def push_base(
    fake: FakeRegistry,
    repository: str = "bases/python",
    tag: str = "1",
    layers: int = 2,
    kind: str = MANIFEST,
    config: dict[str, Any] | None = None,
    layer_type: str = f"{OCI}.layer.v1.tar+gzip",
    **more: Any,
) -> str:
    """Push an image to begin with, and return the digest of its manifest."""
    blobs = [hashlib.sha256(f"{i}".encode()).digest() * 4000 for i in range(layers)]
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/bin", "A=1", "B=x=y"],
            "Labels": {"base": "1"},
            "User": "1001",
            "Entrypoint": ["/bin/sh"],
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(blob) for blob in blobs]},
        "history": [{"created_by": "base"}],
        **(config or {}),
    }
    body = {
        "schemaVersion": 2,
        "mediaType": kind,
        "config": {
            "mediaType": f"{OCI}.config.v1+json",
            **fake.put(repository, json.dumps(described).encode()),
        },
        "layers": [{"mediaType": layer_type, **fake.put(repository, blob)} for blob in blobs],
        "annotations": {"of": "the base"},
        **more,
    }
    return fake.push(repository, tag, json.dumps(body).encode(), kind)
