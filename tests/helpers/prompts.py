"""Answers the prompts of replicas in a kernel's cell, as a person does."""

from __future__ import annotations

import time

from tests.helpers.kernels import WAIT, Client, Request

STOPS = """\
import os, pathlib, time

done = pathlib.Path("done")

def average(value):
    total = value + 1
    breakpoint()
    return total / 2

if os.environ["CIAO_REPLICA"] == "worker-1":
    print("hit", time.time(), flush=True)
    print("mean", average(6), flush=True)
    done.touch()
step = 0
while not done.exists():
    step += 1
    print("step", step, flush=True)
    time.sleep(0.05)
"""
"""worker-1 stops; worker-0 writes lines until a file of worker-1 lets it end."""

RANKS = """\
import time
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
def train(shard):
    if shard == 3:
        raise ValueError("bad shard")
    for step in range(100000):
        print("step", step, flush=True)
        time.sleep(0.05)
train(rank)
"""
"""For two workers with two ranks each: the last rank fails, and the others write lines."""


class Person:
    """Answers the prompts of one cell.

    Args:
        client: The front end.
        request: The cell.
    """

    def __init__(self, client: Client, request: Request) -> None:
        self._client, self._request, self._seen = client, request, 0

    def prompt(self, within: float = WAIT) -> str:
        """Wait for the next prompt, and return its text."""
        self._seen += 1
        inputs, cell = self._request.inputs, self._request
        self._client.wait(lambda: len(inputs) >= self._seen or cell.done, "a prompt", within)
        assert len(inputs) >= self._seen, f"{cell.text}\n{cell.reply}"
        return str(inputs[self._seen - 1]["content"]["prompt"])

    def says(self, *lines: str) -> None:
        """Answer the prompt; each further line answers the next one."""
        for number, line in enumerate(lines):
            if number:
                self.prompt()
            self._client.kc.input(line)

    def asks(self, line: str, answer: str) -> float:
        """Answer the prompt, wait for a text and for the next prompt; return the seconds."""
        began = time.monotonic()
        self._client.kc.input(line)
        self.prompt()
        self._client.wait_text(self._request, answer)
        return time.monotonic() - began


def lines(request: Request, text: str) -> int:
    """Return the number of shown lines with a text."""
    return sum(text in line for line in request.text.splitlines())
