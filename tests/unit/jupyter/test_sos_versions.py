"""SoS and a kernel with different versions of ciao: an error names both."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel import __version__
from ciao_kernel.jupyter.sos import versions


def test_the_question_reads_the_version() -> None:
    assert eval(versions.QUESTION["ciao"]) == __version__


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"ciao": {"status": "ok", "data": {"text/plain": "'1.2'"}}}, "1.2"),
        ({"ciao": {"status": "error", "ename": "ModuleNotFoundError"}}, ""),
        ({"ciao": {"status": "ok", "data": {"text/plain": "<no text>"}}}, ""),
        ({}, ""),
    ],
)
def test_the_version_in_a_reply(answer: dict[str, Any], version: str) -> None:
    assert versions.version_in({"user_expressions": answer}) == version


def test_a_reply_without_the_answer() -> None:
    assert versions.version_in({"status": "aborted"}) == ""


def test_an_error_of_equal_versions_stays() -> None:
    assert versions.explained("TypeError: x", "1.0", "1.0") == "TypeError: x"


def test_different_versions_are_named_before_the_error() -> None:
    assert versions.explained("AttributeError: no give", "1.0", "2.0") == (
        "SoS has ciao 1.0, but the kernel has ciao 2.0. Install the same version in both "
        "environments, and restart SoS. (The kernel's error: AttributeError: no give)"
    )
    text = versions.explained("ModuleNotFoundError: ciao_kernel", "1.0", "")
    assert text.startswith("SoS has ciao 1.0, but the kernel has no ciao. Install")
