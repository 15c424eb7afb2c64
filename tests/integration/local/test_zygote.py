"""The zygote of a warm replica alone: what it forks for the requests that it reads at once."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any


class Channel:
    """The agent's end of the channel to a zygote."""

    def __init__(self, own: socket.socket) -> None:
        self._own, self._text = own, b""
        self.descriptor = -1
        """The last descriptor that came with a message."""

    def send(self, *requests: dict[str, Any]) -> None:
        """Send requests so that the zygote reads them at once."""
        self._own.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in requests))

    def wait_for(self, word: str) -> dict[str, Any]:
        """Return the next message that has a word."""
        while True:
            line, feed, rest = self._text.partition(b"\n")
            if feed:
                self._text = rest
                message: dict[str, Any] = json.loads(line)
                if word in message:
                    return message
                continue
            data, found, *_ = socket.recv_fds(self._own, 1 << 16, 1)
            assert data, f"the zygote has ended before it said {word}"
            self._text += data
            self.descriptor = found[0] if found else self.descriptor

    def close(self) -> None:
        self._own.close()


def test_an_heir_runs_no_program_that_its_parent_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text("pass")

    def run(rank: int) -> dict[str, Any]:
        ask: dict[str, Any] = {
            "run": 1,
            "rank": rank,
            "marked": False,
            "variables": {},
            "oom": False,
        }
        place = {"folder": str(tmp_path), "program": "cell.py", "arguments": []}
        return {**ask, **place, "learned": "", "results": {}}

    ours, theirs = socket.socketpair()
    code = (
        "import sys; from ciao_kernel.delivery.warm.zygote.commands import main; main(sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--zygote", str(theirs.fileno()), "json"],
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    zygote = Channel(ours)
    zygote.wait_for("ready")
    zygote.send({"bring": ["math"]}, run(rank=1))
    assert zygote.wait_for("forked")["rank"] == 1
    heir = Channel(socket.socket(fileno=zygote.descriptor))
    heir.wait_for("ready")
    heir.send(run(rank=2))
    assert heir.wait_for("forked")["rank"] == 2, "the request of its parent"
    assert zygote.wait_for("exit")["code"] == 0
    zygote.close()
    assert process.wait() == 0  # before its heir, whose end it would report
    assert heir.wait_for("exit")["code"] == 0
    heir.close()
