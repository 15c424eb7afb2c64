"""The images of the frameworks, where a registry does not answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ciao_kernel.commands import image_checks
from ciao_kernel.commands.finding import Finding
from ciao_kernel.config import Settings


def checked(patience: float) -> list[Finding]:
    async def main() -> list[Finding]:
        images = {"tensorflow": "a.example/x:1", "pytorch": ""}
        found = image_checks.check_images(images, Settings(), patience)
        return [finding async for finding in found]

    return asyncio.run(main())


def test_a_registry_that_does_not_answer_in_time_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(image_checks, "_exists", lambda *_: answered.wait())
    (finding,) = checked(0.01)  # returns although the thread still waits
    answered.set()
    assert finding.level == "note"
    assert "a.example/x:1 of tensorflow jobs could not be checked" in finding.what
    assert finding.fix


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(image_checks, "_exists", broken)
    with pytest.raises(ZeroDivisionError):
        checked(60.0)
