"""The way back by a bucket."""

from __future__ import annotations

import importlib
import json
import os
import time
from typing import Any

from ciao_kernel.delivery.output.output_keeper.program_end import why_none

_TRIES, _SILENT = 6, 60.0
"""Tries to write to a bucket, and seconds without an answer after which one is given up."""


def send(marks: str, pause: float, linger: float, limit: int, words: list[str]) -> str:
    """Wait for the program's end, and write the files to a bucket; return why that failed.

    The address is a secret: it is in no text of this function.

    Args:
        marks: Folder for marks, and for what is sent.
        pause: Seconds before the first new try.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
    """
    if (none := why_none(marks, words)) is not None:
        return none
    files = importlib.import_module("ciao_replica_files")
    try:
        with open(os.path.join(marks, files.REPLICA)) as told:
            address = json.loads(os.environ["CIAO_OUTPUT_ADDRESSES"]).get(told.read())
        uid = os.environ[files.POD_UID]
    except (OSError, KeyError, ValueError) as error:
        return _not_packed(error)
    if not address:
        return "there is no address in the bucket for this replica"
    stream = os.path.join(marks, "stream")
    return upload(files, address, stream, uid, pause, linger, limit, words)


def upload(
    files: Any,
    address: str,
    stream: str,
    pod: str,
    pause: float,
    linger: float,
    limit: int,
    words: list[str],
) -> str:
    """Pack files, and write them to an address; return why that failed."""
    fault = ""
    try:
        with open(stream, "wb") as file:
            files.write_stream(file.write, words, limit, pod)
    except (OSError, KeyError, ValueError) as error:
        return _not_packed(error)
    for number in range(_TRIES):
        time.sleep(pause * number)
        fault = _put(address, stream)
        if not fault:
            time.sleep(linger)
            break
    return fault


def _not_packed(error: Exception) -> str:
    return "the files could not be packed: " + (getattr(error, "strerror", "") or repr(error))


def _put(address: str, stream: str) -> str:
    """Write a file to an address; return why that failed."""
    request = importlib.import_module("urllib.request")
    headers = {"Content-Length": str(os.path.getsize(stream))}
    headers["Content-Type"] = "application/octet-stream"
    try:
        with open(stream, "rb") as file:
            ask = request.Request(address, file, headers, method="PUT")
            with request.urlopen(ask, timeout=_SILENT):
                return ""
    except Exception as error:
        code, reason = getattr(error, "code", None), getattr(error, "reason", None)
        if code:
            return "the bucket refused the files: HTTP " + str(code)
        return "the bucket cannot be reached: " + str(reason or type(error).__name__)
