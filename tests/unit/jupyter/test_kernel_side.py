"""What a kernel answers SoS: never an error, whatever the user's objects raise."""

from __future__ import annotations

import base64
import pickle
from types import ModuleType
from typing import Any

import pytest

from ciao_kernel.jupyter.sos import kernel_side


class Closed:
    """An object that may not be asked anything, such as a client whose connection is closed."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("not connected")


class Unbound(Closed):
    """One that does not even tell its class."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("not bound")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Late(ModuleType):
    """A module that is loaded when it is used, and cannot be."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError("no such library")


def test_give_answers_with_what_can_be_pickled_and_says_why_the_rest_cannot() -> None:
    namespace = {"fine": [1], "generator": (i for i in ()), "closed": Closed()}

    answers = kernel_side.give(namespace, {"fine": "fine", "gen": "generator", "no": "missing"})

    assert pickle.loads(base64.b64decode(answers["fine"][0])) == [1]
    assert answers["gen"][0] == ""
    assert answers["gen"][1].startswith("TypeError: cannot pickle")
    assert answers["no"] == ["", "NameError: name 'missing' is not defined"]


@pytest.mark.parametrize(
    ("item", "answer"),
    [
        ("v", ["dict of length 1", "{'b': 1}"]),
        ("v['b']+1", ["int", "2"]),
        ("closed", ["Closed", None]),
        ("unbound", ["Unbound", "unbound has no text: RuntimeError: no text"]),
        ("missing", ["", "Unknown variable missing"]),
        ("v.csv", ["", "Unknown variable v.csv"]),
        ("*.csv", ["", "Unknown variable *.csv"]),
        ("v['c']", ["", "v['c'] has no value: KeyError: 'c'"]),
    ],
)
def test_preview(item: str, answer: list[Any]) -> None:
    namespace: dict[str, Any] = {"v": {"b": 1}, "closed": Closed(), "unbound": Unbound()}

    described, text = kernel_side.preview(namespace, item)

    assert described == answer[0]
    assert answer[1] in (text, None)


def test_session_asks_modules_alone() -> None:
    module = ModuleType("tool")
    module.__dict__["__version__"] = "1.2"
    names = {"a": Closed(), "b": Unbound(), "c": Late("late"), "d": module, "e": ModuleType("bare")}

    versions = dict(kernel_side.session(names))

    assert versions["tool"] == "1.2"
    assert not {"late", "bare"} & set(versions)
