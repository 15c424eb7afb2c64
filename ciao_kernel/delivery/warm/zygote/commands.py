"""Interprets the command line of a process, whose words tell what it is to be."""

from __future__ import annotations

import ctypes
import json
import signal
import socket
import sys

from ciao_kernel.delivery.warm.zygote.program import run
from ciao_kernel.delivery.warm.zygote.server import Zygote

_PARENT_DEATH_SIGNAL = 1


def main(words: list[str]) -> None:
    """Be a zygote, or run one program without one."""
    if words[0] == "--program":
        ask = json.loads(sys.stdin.buffer.read())
    else:
        # Below the agent alone: without it nobody would end this process.
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        ask = Zygote(socket.socket(fileno=int(words[1]))).serve(words[2:])
    run(ask)


if __name__ == "__main__":
    main(sys.argv[1:])
