"""Packages of a cell that cannot be had: the error has the line, also in a dry run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.api.client import NoDisplay
from ciao_kernel.config import Settings
from ciao_kernel.errors import DirectiveError, UsageError, describe
from ciao_kernel.model import Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session


def refused(folder: Path, line: str) -> UsageError:
    session = Session(Registry({}), Owner("me"), Settings(storage=folder / "storage"))
    cell = f"%framework=python\n%worker=1\n%packages=numpy\n{line}\n%dryrun\nprint(1)\n"
    with pytest.raises(UsageError) as caught:
        asyncio.run(session.run(cell, NoDisplay(), folder))
    return caught.value


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%packages=pandas, scipy", "'pandas,' is not a package"),
        ("%packages=['pandas']", "'[pandas]' is not a package"),
        ("%packages=-r requirements.txt", "-r is an option of pip"),
        ("%packages=pandas=2.0", "'pandas=2.0' is not a package"),
        ("%requirements=gone.txt", "gone.txt cannot be read"),
        ("%requirements=broken.txt", "broken.txt, line 2: 'lib==2.x!' is not a package"),
    ],
)
def test_the_line_is_shown(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "broken.txt").write_text("app\nlib==2.x!\n")
    error = refused(tmp_path, line)
    assert isinstance(error, DirectiveError)
    assert message in error.message
    name, _, value = line.partition("=")
    shown = describe(error)
    assert shown[:2] == [f"line 4: {line}", " " * len(f"line 4: {name}=") + "^" * len(value)]


@pytest.mark.parametrize(
    "value",
    [
        "jane:hunter2@example.com/x.whl",
        "https://jane:hunter2@example.com/x.whl",
        "'x @ https://jane:hunter2@example.com/x.whl'",
        "-ihttps://jane:hunter2@example.com",
        "https://conda.anaconda.org/t/hunter2/team/x.whl",
        "API_KEY=hunter2",
    ],
)
@pytest.mark.parametrize("name", ["packages", "requirements"])
def test_no_password_is_shown(tmp_path: Path, name: str, value: str) -> None:
    assert "hunter2" not in "\n".join(describe(refused(tmp_path, f"%{name}={value}")))
