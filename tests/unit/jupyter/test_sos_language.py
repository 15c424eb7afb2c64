"""The language module for SoS: what it tells the user, and what it logs."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

pytest.importorskip("sos")

from sos.utils import env

from ciao_kernel.jupyter.sos import kernel_side
from ciao_kernel.jupyter.sos.language import Ciao

NOT_A_PICKLE = base64.b64encode(b"not a pickle").decode()


class SosKernel:
    """A kernel of SoS without kernels of languages.

    Args:
        answers: The answer to each request: a pickled value and a problem for each name.
    """

    kernels: ClassVar[dict[str, Any]] = {}

    def __init__(self, answers: dict[str, list[str]] | None = None) -> None:
        self.answers = answers
        self.warned: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def get_response(self, code: str, kinds: list[str]) -> Iterator[tuple[str, Any]]:
        if self.answers is None:
            raise RuntimeError("gone")
        mark = code.split("'")[5]
        yield "display_data", {"data": {kernel_side.ANSWER: {"mark": mark, "answer": self.answers}}}


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Each record of ciao, with its level."""
    found = [one for one in caplog.records if one.name.startswith("ciao_kernel")]
    return [(one.getMessage(), one.levelno) for one in found]


@pytest.mark.parametrize(
    ("answers", "warning", "record"),
    [
        (None, "%put cannot send x: gone", "%put got no answer"),
        ({"x": [NOT_A_PICKLE, ""]}, "%put cannot send x: UnpicklingError", "%put cannot read x"),
    ],
)
def test_a_put_that_fails_is_one_sentence_of_sos(
    answers: Any, warning: str, record: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SoS shows records from the level warning on as boxes, without their arguments."""
    caplog.set_level(logging.DEBUG)
    sos = SosKernel(answers)
    assert Ciao(sos).put_vars(["x"]) == {}
    (said,) = sos.warned
    assert said.startswith(warning)
    assert logged(caplog) == [(record, logging.DEBUG)]


def test_a_get_that_fails_is_one_sentence_of_sos(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(env, "sos_dict", {"x": lambda: None})
    sos = SosKernel()
    asyncio.run(Ciao(sos).get_vars(["x"]))
    (said,) = sos.warned
    assert said.startswith("%get cannot send x: ")
    assert logged(caplog) == [("%get cannot send x", logging.DEBUG)]
