"""Answers requests for files of a replica; :mod:`ciao_kernel.delivery.transfers` sends them."""

from __future__ import annotations

import os
from typing import Any

from ciao_kernel.delivery.replica_files.messages import write_out
from ciao_kernel.delivery.replica_files.on_claim import remove
from ciao_kernel.delivery.replica_files.receiver import receive
from ciao_kernel.delivery.replica_files.sender import Sender


def main(request: dict[str, Any]) -> None:
    """Do what a request asks for; the other side is :mod:`.transfers` and :mod:`.fetch`."""
    try:
        if request["do"] == "receive":
            receive(request["path"])
        elif request["do"] == "remove":
            remove(request["path"], request["pod"])
        elif request["do"] == "watch":
            Sender(write_out).watch(request)
        else:
            Sender(write_out).send(request)
    except BrokenPipeError:
        os._exit(4)
