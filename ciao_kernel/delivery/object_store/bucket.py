"""A bucket, and signed addresses of objects in it (AWS Signature Version 4, in the query).

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html. Other services sign in
the same way. Only this machine has the keys; an address is for one object, one verb and some time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from ciao_kernel.delivery.object_store import credentials
from ciao_kernel.delivery.object_store.credentials import Credentials

LONGEST = 7 * 24 * 3600
"""Seconds for which an address is valid at most."""
_ALGORITHM = "AWS4-HMAC-SHA256"
_SAFE = "-_.~"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A place for objects, and what opens it."""

    server: str
    """``https://HOST`` or ``https://HOST:PORT``."""
    path: str
    """What is before the name of an object, with slashes at both ends."""
    keys: Credentials

    def signed(self, verb: str, name: str, seconds: int = LONGEST, now: float | None = None) -> str:
        """Return the address by which anybody may read or write an object for some time.

        Args:
            verb: ``GET`` or ``PUT``.
            name: Name of the object.
            seconds: How long it is valid.
            now: Seconds since the epoch; None: now.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        scope = f"{stamp[:8]}/{self.keys.region}/s3/aws4_request"
        query = {
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self.keys.key_id}/{scope}",
            "X-Amz-Date": stamp,
            "X-Amz-Expires": str(seconds),
            "X-Amz-SignedHeaders": "host",
        }
        if self.keys.token:
            query["X-Amz-Security-Token"] = self.keys.token
        path = quote(self.path + name, safe=f"/{_SAFE}")
        text = "&".join(f"{key}={quote(query[key], safe=_SAFE)}" for key in sorted(query))
        host = self.server.partition("://")[2]
        request = f"{verb}\n{path}\n{text}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
        digest = hashlib.sha256(request.encode()).hexdigest()
        key = f"AWS4{self.keys.secret}".encode()
        for part in scope.split("/"):
            key = _hmac(key, part)
        signature = _hmac(key, f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}").hex()
        return f"{self.server}{path}?{text}&X-Amz-Signature={signature}"


def find(address: str, environment: Mapping[str, str] | None = None) -> Bucket:
    """Return the bucket of the setting ``outputStore``.

    Args:
        address: ``s3://BUCKET/PREFIX``, or ``https://HOST/BUCKET/PREFIX`` of another service.
        environment: The variables; None: those of this process.

    Raises:
        BackendError: There are no credentials for it.
    """
    variables = os.environ if environment is None else environment
    keys = credentials.find(variables)
    parts = urlsplit(address)
    below = f"{parts.path.strip('/')}/".lstrip("/")
    if parts.scheme != "s3":
        return Bucket(f"{parts.scheme}://{parts.netloc}", f"/{below}", keys)
    named = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
    if named or "." in parts.netloc:  # a dot does not fit the certificate of AWS
        server = (named or f"https://s3.{keys.region}.amazonaws.com").rstrip("/")
        return Bucket(server, f"/{parts.netloc}/{below}", keys)
    return Bucket(f"https://{parts.netloc}.s3.{keys.region}.amazonaws.com", f"/{below}", keys)


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
