"""What pip's lines tell about its progress, of releases with lines for programs and of others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ciao_kernel.delivery.packages import pip
from ciao_kernel.delivery.packages.pip_progress import PipProgress
from ciao_kernel.model import Unit
from ciao_kernel.plugins import Step

# pip 25.3 with --progress-bar raw
RAW = """Collecting app
  Downloading app-1.0-py3-none-any.whl.metadata (2 kB)
Downloading app-1.0-py3-none-any.whl (1.5 MB)
Progress 0 of 1500000
Progress 700000 of 1500000
Progress 1500000 of 1500000
Using cached lib-2.0-py3-none-any.whl (12 kB)
Installing collected packages: lib, app
Successfully installed app-1.0 lib-2.0
"""
# pip 22.3
OLD = """Collecting app==1.0
  Downloading http://127.0.0.1:1/files/app-1.0-py3-none-any.whl (1.5 MB)
Processing /wheels/lib-2.0-py3-none-any.whl
Installing collected packages: lib, app
Successfully installed app-1.0 lib-2.0
"""


class Noted(Step):
    def __init__(self) -> None:
        super().__init__(lambda event: None, "installing")
        self.noted: list[tuple[int, int, Unit, str]] = []

    def at(self, done: int, total: int, unit: Unit = Unit.BYTES, detail: str = "") -> None:
        self.noted.append((done, total, unit, detail))


def read(text: str, files: int) -> tuple[list[Any], str]:
    """Return what is noted, and the lines that remain for others."""
    step = Noted()
    progress = PipProgress(step, files)
    rest = [line for line in text.splitlines() if not progress.read(line)]
    return step.noted, "".join(f"{line}\n" for line in rest)


def test_bytes_of_each_download() -> None:
    noted, rest = read(RAW, 2)
    file = "app-1.0-py3-none-any.whl (1 of 2)"
    assert [one for one in noted if one[2] is Unit.BYTES] == [
        (0, 1_500_000, Unit.BYTES, file),
        (700_000, 1_500_000, Unit.BYTES, file),
        (1_500_000, 1_500_000, Unit.BYTES, file),
    ]
    assert rest == "".join(line for line in RAW.splitlines(True) if "Progress" not in line)


def test_files_are_counted_without_bytes() -> None:
    noted, rest = read(OLD, 2)
    assert noted == [
        (0, 2, Unit.PACKAGES, "app-1.0-py3-none-any.whl"),
        (1, 2, Unit.PACKAGES, "lib-2.0-py3-none-any.whl"),
        (2, 2, Unit.PACKAGES, ""),
    ]
    assert rest == OLD


def test_a_build_which_may_take_minutes_is_named() -> None:
    text = "  Building wheel for app (pyproject.toml): started\n"
    assert read(text, 0) == ([(0, 0, Unit.PACKAGES, "building app")], text)


def test_a_build_is_not_the_end_of_a_known_number() -> None:
    text = """Collecting app
  Downloading app-1.0.tar.gz (1.5 MB)
Downloading lib-2.0-py3-none-any.whl (1.5 MB)
Building wheels for collected packages: app
  Building wheel for app (pyproject.toml): started
  Building wheel for app (pyproject.toml): still running...
  Building wheel for app (pyproject.toml): finished with status 'done'
  Created wheel for app: filename=app-1.0-py3-none-any.whl size=1 sha256=0
Installing collected packages: lib, app
"""
    assert read(text, 2)[0] == [
        (0, 2, Unit.PACKAGES, "app-1.0.tar.gz"),
        (1, 2, Unit.PACKAGES, "lib-2.0-py3-none-any.whl"),
        (1, 2, Unit.PACKAGES, "building app"),
        (1, 2, Unit.PACKAGES, "building app"),
        (1, 2, Unit.PACKAGES, ""),
        (2, 2, Unit.PACKAGES, ""),
    ]


def test_no_number_is_invented_where_none_is_known() -> None:
    noted, _ = read(OLD, 0)
    assert {one[:2] for one in noted} == {(0, 0)}


@pytest.mark.parametrize(("version", "bar"), [("24.0", "off"), ("24.1", "raw"), ("25.3", "raw")])
def test_only_a_pip_that_can_is_asked_for_bytes(
    version: str, bar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    from packaging.version import Version

    monkeypatch.setattr(pip, "check", lambda: pip.Own(Path("/pip"), Version(version)))
    said: list[str] = []
    command = ["sh", "-c", 'echo "$PIP_PROGRESS_BAR"']
    asyncio.run(pip.run(command, "", said.append, progress=PipProgress(Noted())))
    asyncio.run(pip.run(command, "", said.append, progress=PipProgress(Noted(), raw=False)))
    asyncio.run(pip.run(command, "", said.append))
    assert said == [bar, "off", "off"]
