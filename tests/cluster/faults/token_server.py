"""A token server for a registry: tells the registry, in a signed note, what somebody may do.

Runs on the node, with its Python and openssl. As Docker's specification has it: a client asks by
GET with Basic credentials, or by POST with a form (containerd's way).
https://distribution.github.io/distribution/spec/auth/token/
"""

import base64
import json
import ssl
import subprocess
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_SECONDS = 300  # that a token is good for


class Handler(BaseHTTPRequestHandler):
    """One request."""

    settings: dict[str, Any]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a client that sends its password in a header, or none."""
        query = parse_qs(urlsplit(self.path).query)
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        user, password = "", ""
        if kind.lower() == "basic":
            user, _, password = base64.b64decode(encoded).decode().partition(":")
        self._answer(user, password, query)

    def do_POST(self) -> None:
        """Answer a client that sends its password in a form."""
        length = int(self.headers.get("Content-Length", 0))
        form = parse_qs(self.rfile.read(length).decode())
        if form.get("grant_type") != ["password"]:
            self._say(400, {"error": "unsupported_grant_type"})
            return
        user, password = (form.get(name, [""])[0] for name in ("username", "password"))
        self._answer(user, password, form)

    def _answer(self, user: str, password: str, asked: dict[str, list[str]]) -> None:
        known = self.settings["accounts"].get(user)
        if user and (known is None or known["password"] != password):
            self._say(401, {"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]})
            return
        allowed = known["actions"] if known else []
        access = []
        for scope in " ".join(asked.get("scope", [])).split():
            kind, _, rest = scope.partition(":")
            name, _, actions = rest.rpartition(":")
            granted = [action for action in actions.split(",") if action in allowed]
            access.append({"type": kind, "name": name, "actions": granted})
        token = self._token(user, access)
        self._say(200, {"token": token, "access_token": token, "expires_in": _SECONDS})

    def _token(self, user: str, access: list[dict[str, Any]]) -> str:
        now = int(time.time())
        chain = "".join(
            line
            for line in Path(self.settings["certificate"]).read_text().splitlines()
            if not line.startswith("-----")
        )
        head = {"typ": "JWT", "alg": "RS256", "x5c": [chain]}
        body = {
            "iss": self.settings["issuer"], "aud": self.settings["service"], "sub": user,
            "iat": now, "nbf": now - 5, "exp": now + _SECONDS, "jti": uuid.uuid4().hex,
            "access": access,
        }  # fmt: skip
        text = f"{_encoded(json.dumps(head).encode())}.{_encoded(json.dumps(body).encode())}"
        signed = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", self.settings["key"]],
            input=text.encode(), capture_output=True, check=True,
        )  # fmt: skip
        return f"{text}.{_encoded(signed.stdout)}"

    def _say(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def main(file: str) -> None:
    """Serve until killed; the settings lie in a file of JSON."""
    Handler.settings = settings = json.loads(Path(file).read_text())
    server = ThreadingHTTPServer((settings["address"], settings["port"]), Handler)
    if settings["tls"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings["tls"]["certificate"], settings["tls"]["key"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
