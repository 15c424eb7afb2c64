"""A package index on the loopback, with wheels that a test writes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO


def wheel(
    name: str,
    version: str,
    code: str = "",
    needs: tuple[str, ...] = (),
    tag: str = "py3-none-any",
    more: Mapping[str, str] | None = None,
) -> tuple[str, bytes]:
    """The file name and the bytes of a wheel with one module, which knows its version."""
    told = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in needs)
    files = {
        f"{name}/__init__.py": f"version = {version!r}\n{code}\n",
        f"{told}/METADATA": metadata,
        f"{told}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        **(more or {}),
    }
    files[f"{told}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{told}/RECORD"])
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for path, text in files.items():
            packed.writestr(zipfile.ZipInfo(path, (2001, 9, 9, 1, 46, 40)), text)
    return f"{name}-{version}-{tag}.whl", buffer.getvalue()


def source(name: str, version: str, code: str) -> bytes:
    """A source distribution that runs code when it is asked what it needs."""
    top = f"{name}-{version}"
    files = {
        "pyproject.toml": "[build-system]\nrequires = []\n"
        'build-backend = "own"\nbackend-path = ["."]\n',
        "own.py": code + "\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{top}/{path}")
            member.size = len(text)
            packed.addfile(member, BytesIO(text.encode()))
    return buffer.getvalue()


class Index(ThreadingHTTPServer):
    """The index; ``files`` may be changed while it runs."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), _Handler)
        self.host = host
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.password = ""
        self.stall = threading.Event()
        """Downloads wait until it is set."""
        self.stall.set()
        self.stalled = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.server_port}/simple"

    def add(
        self,
        name: str,
        version: str,
        *needs: str,
        code: str = "",
        tag: str = "",
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Put a wheel into it; ``more`` are further files, by their paths."""
        file, raw = wheel(name, version, code, needs, tag or "py3-none-any", more)
        self.files[file] = raw


class _Handler(BaseHTTPRequestHandler):
    server: Index  # type: ignore[assignment]

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        expected = base64.b64encode(f"jane:{self.server.password}".encode()).decode()
        if self.server.password and self.headers.get("Authorization") != f"Basic {expected}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        *_, folder, name = self.path.split("/") if self.path.count("/") > 2 else ("", "", "")
        if self.path.startswith("/files/"):
            self.server.stalled.set()
            self.server.stall.wait(60)
            kind = "application/zip" if self.path.endswith(".whl") else "application/gzip"
            self.say(self.server.files[self.path.rpartition("/")[2]], kind)
            return
        found = sorted(
            file
            for file in self.server.files
            if file.partition("-")[0].replace("_", "-") == (folder if not name else "")
        )
        links = "".join(
            f'<a href="/files/{file}#sha256='
            f'{hashlib.sha256(self.server.files[file]).hexdigest()}">{file}</a>\n'
            for file in found
        )
        if found:
            self.say(f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html")
        else:
            self.send_error(404)

    def say(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are kept."""


@contextlib.contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Index]:
    """An index for as long as the block runs."""
    index = Index(host)
    thread = threading.Thread(target=index.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield index
    finally:
        index.stall.set()
        index.shutdown()
        thread.join()
        index.server_close()
