"""Answers the prompts of replicas in a kernel's cell, as a person does."""

from __future__ import annotations

import time

from tests.helpers.kernels import WAIT, Client, Request


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
