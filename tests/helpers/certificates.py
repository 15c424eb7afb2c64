"""A certificate of this machine, for servers that tests ask by https."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path) -> Path:
    """Make ``crt``, which signs itself, and its ``key`` in a folder; return the folder."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=test"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key"), "-out", str(folder / "crt")),
        ],
        check=True,
        capture_output=True,
    )
    return folder
