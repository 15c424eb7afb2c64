"""Paths that no file can have, in each directive that takes one: one clear error with the line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.local import interpreter
from ciao_kernel.builders import context
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input import files
from ciao_kernel.delivery.packages import requirements
from ciao_kernel.errors import CiaoError, DirectiveError, EnvironmentFault, SourceError, describe
from ciao_kernel.model import BuildSpec, Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.helpers import hostile
from tests.helpers.rights import as_nobody


class Display:
    def show(self, event: object) -> None: ...


@pytest.fixture
def folder(readable: Path) -> Iterator[Path]:
    hostile.plant(readable)
    yield readable
    (readable / "closed").chmod(0o700)


def wrong(text: str, folder: Path) -> Any:
    """The error of a cell."""
    session = Session(Registry({}), Owner("a test"), Settings(storage=folder / "storage"))
    with pytest.raises(CiaoError) as caught:
        asyncio.run(session.run(text, Display(), folder))  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%python=" + "a" * 5000, "there is no Python interpreter aaa"),
        ("%python=" + "a" * 300, "there is no Python interpreter aaa"),
        ("%python=loop/bin/python", "there is no Python interpreter loop/bin/python"),
        ("%python=file/bin/python", "there is no Python interpreter file/bin/python."),
        ("%files=" + "/".join(["*"] * 1000), "the pattern has too many folders"),
        ("%files=" + "**/" * 1000 + "*", "the pattern has too many folders"),
        ("%files=" + "a" * 5000, "File name too long"),
        ("%files=loop", "it is a link to itself"),
        ("%files=pipe", "a pipe"),
    ],
    ids=lambda text: text[:20],
)
def test_the_error_names_the_line(folder: Path, line: str, message: str) -> None:
    error = wrong(f"%framework=tensorflow\n{line}\nprint(1)\n", folder)
    assert isinstance(error, DirectiveError)
    assert error.line == 2
    assert message in error.message
    shown = describe(error)
    assert shown[0].startswith("line 2: %")


def test_an_interpreter_of_the_settings_has_no_line(folder: Path) -> None:
    named = Settings(storage=folder).with_values({"python": "a" * 5000}, "$CIAO_PYTHON")
    session = Session(Registry({}), Owner("a test"), named)
    with pytest.raises(EnvironmentFault, match=r"aaa…: File name too long\.") as caught:
        asyncio.run(session.run("%framework=tensorflow\n1\n", Display(), folder))  # type: ignore[arg-type]
    assert "the setting python, which $CIAO_PYTHON sets" in caught.value.hint
    assert "%python" not in caught.value.hint


TAKES: dict[str, Callable[[str, Path], object]] = {
    "python": lambda value, folder: interpreter.find(value, folder),
    "files": lambda value, folder: files.find([value], folder, "x.py"),
    "!files": lambda value, folder: files.find([f"!{value}"], folder, "x.py"),
    "requirements": lambda value, folder: requirements.read(BuildSpec(requirements=value), folder),
    "dockerfile": lambda value, folder: context.read(folder, value, "%dockerfile"),
    "copy": lambda value, folder: context.gather(
        folder, [(value, "Dockerfile, line 1")], lambda path: True
    ),
}


@pytest.mark.parametrize("name", TAKES)
def test_each_hostile_word_is_taken_or_refused(folder: Path, name: str) -> None:
    """Also with what a cell cannot contain: null bytes, halves of characters."""
    for word in hostile.WORDS:
        try:
            TAKES[name](word, folder)
        except CiaoError as error:
            describe(error)


def test_a_folder_that_may_not_be_entered(folder: Path) -> None:
    with as_nobody():
        for take in TAKES.values():
            with pytest.raises(CiaoError):
                take("closed/one", folder)


def test_requirements_that_lead_in_a_circle(folder: Path) -> None:
    (folder / "a.txt").write_text("-r loop\n")
    for name in ("loop", "a.txt"):
        with pytest.raises(SourceError, match="cannot be read: "):
            requirements.read(BuildSpec(requirements=name), folder)
