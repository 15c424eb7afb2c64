"""The way back of a run in a warm replica, whose container goes on."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from typing import Any

from ciao_kernel.delivery.output.output_keeper.to_bucket import upload


def give(ask: dict[str, Any]) -> str:
    """Write the files of a run in this folder to the log or to a bucket; return why that failed.

    Args:
        ask: The way, the ``words`` and the ``limit``. By ``log`` the ``mark`` before each line and
            the ``id`` of the run; by ``s3`` the ``address``, the ``pause`` before the first new
            try, and a path for the ``stream``.
    """
    files = importlib.import_module("ciao_replica_files")
    if ask["way"] == "s3":
        address, stream = ask["address"], ask["stream"]
        try:
            return upload(files, address, stream, "", ask["pause"], 0.0, ask["limit"], ask["words"])
        finally:
            with contextlib.suppress(OSError):
                os.remove(stream)

    def put(line: bytes) -> None:
        told = {"ev": "files", "id": ask["id"], "line": line.decode().strip()}
        data = f"\n{ask['mark']}{json.dumps(told, separators=(',', ':'))}\n".encode()
        while data:
            data = data[os.write(1, data) :]

    files.write_to_log(ask["words"], ask["limit"], put)
    return ""
