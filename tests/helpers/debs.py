"""A repository of Debian packages that a test writes: https://wiki.debian.org/DebianRepository."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath


def deb(name: str, version: str, files: Mapping[str, str]) -> tuple[str, bytes]:
    """The description and the bytes of a package."""
    told = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: a test\n"
    told += "Description: written by a test\n"
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar({"control": told}),
        "data.tar.gz": _tar(files),
    }
    raw = b"!<arch>\n"
    for part, data in parts.items():
        raw += f"{part:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        raw += data + b"\n" * (len(data) % 2)
    return told, raw


def _tar(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        folders = {str(one) for path in files for one in PurePosixPath(path).parents}
        for folder in sorted(folders - {"."}):
            made = tarfile.TarInfo(f"./{folder}/")
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
        for path, text in files.items():
            member = tarfile.TarInfo(f"./{path}")
            member.size, member.mode = len(text.encode()), 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Repository(ThreadingHTTPServer):
    """The repository, flat and not signed."""

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), _Handler)
        self.source = f"deb [trusted=yes] http://{host}:{self.server_address[1]}/ ./\n"
        """What a sources.list has to say."""
        self.packages: dict[str, bytes] = {}
        self.described: list[str] = []
        self.asked: list[str] = []

    def add(self, name: str, version: str, files: Mapping[str, str]) -> None:
        """Put a package into it."""
        told, raw = deb(name, version, files)
        file = f"{name}_{version}_all.deb"
        self.packages[f"/{file}"] = raw
        digest = hashlib.sha256(raw).hexdigest()
        self.described.append(f"{told}Filename: ./{file}\nSize: {len(raw)}\nSHA256: {digest}\n")
        self.packages["/Packages.gz"] = gzip.compress("\n".join(self.described).encode())


class _Handler(BaseHTTPRequestHandler):
    server: Repository  # type: ignore[assignment]

    def do_GET(self) -> None:
        path = self.path.replace("/./", "/")
        self.server.asked.append(path)
        found = self.server.packages.get(path)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, *args: object) -> None: ...


@contextlib.contextmanager
def serving(host: str) -> Iterator[Repository]:
    """A repository for as long as the block runs."""
    made = Repository(host)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()
