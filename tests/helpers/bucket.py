"""A bucket in this process: takes what is written at signed addresses, and gives it back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Bucket(BaseHTTPRequestHandler):
    """Takes what is written at a signed address, and gives it back."""

    objects: dict[str, bytes] = {}  # noqa: RUF012

    def do_PUT(self) -> None:
        assert "X-Amz-Signature=" in self.path
        size = int(self.headers["Content-Length"])
        self.objects[self.path.partition("?")[0]] = self.rfile.read(size)
        self._answer(200, b"")

    def do_GET(self) -> None:
        found = self.objects.get(self.path.partition("?")[0])
        self._answer(404 if found is None else 200, found or b"")

    def _answer(self, code: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextlib.contextmanager
def bucket(host: str) -> Iterator[str]:
    """Yield the address of a bucket that listens on an address of this machine."""
    with ThreadingHTTPServer((host, 0), Bucket) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://{host}:{server.server_address[1]}/data"
        finally:
            server.shutdown()
            serving.join()
