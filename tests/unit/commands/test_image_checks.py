"""The images of the frameworks, where a registry does not answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ciao_kernel.commands import image_checks
from ciao_kernel.commands.finding import Finding
from ciao_kernel.config import Settings


def checked(patience: float, settings: Settings | None = None) -> list[Finding]:
    async def main() -> list[Finding]:
        images = {"tensorflow": "a.example/x:1", "pytorch": ""}
        found = image_checks.check_images(images, settings or Settings(), patience)
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


def test_a_path_of_an_unknown_user_is_a_fault_of_its_setting() -> None:
    (finding,) = checked(5, Settings(registry_authority="~nosuch1/ca.pem"))
    assert finding.level == "wrong"
    assert "registryAuthority is ~nosuch1/ca.pem, which is no path" in finding.what
    assert finding.fix == "ciao config registryAuthority=FILE"


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(image_checks, "_exists", broken)
    with pytest.raises(ZeroDivisionError):
        checked(60.0)
