"""An environment of this machine serves as long as pip would answer the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ciao_kernel.backends.local import environment
from ciao_kernel.delivery.packages.requirements import read
from ciao_kernel.model import BuildSpec
from tests.helpers.packages import wheel


def test_a_wheel_that_was_built_anew_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "requirements.txt").write_text("--find-links .\nmylib\n")
    wanted = read(BuildSpec(requirements="requirements.txt"), tmp_path)

    def said(text: str) -> tuple[str, str]:
        """The interpreter, and what the package says in it."""
        name, raw = wheel("mylib", "0.1", f"said = {text!r}")
        if text:
            (tmp_path / name).write_bytes(raw)
        python = asyncio.run(
            environment.prepare(sys.executable, wanted, tmp_path / "cache", lambda event: None)
        )
        command = [python, "-c", "import mylib; print(mylib.said)"]
        return python, subprocess.check_output(command, text=True).strip()

    first, same, other = said("one"), said(""), said("other")

    assert first == same
    assert (first[1], other[1]) == ("one", "other")


@pytest.mark.second("packages", only="0o0")
@pytest.mark.parametrize("umask", [0o002, 0o000], ids=oct)
def test_an_environment_that_others_could_change_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    """Its programs run with the user's rights. One that was just made is closed to others."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    name, raw = wheel("mylib", "0.1", "")
    (tmp_path / name).write_bytes(raw)
    (tmp_path / "requirements.txt").write_text("--find-links .\nmylib\n")
    wanted = read(BuildSpec(requirements="requirements.txt"), tmp_path)

    def brought() -> Path:
        made = environment.prepare(sys.executable, wanted, tmp_path / "cache", lambda event: None)
        return Path(asyncio.run(made)).parents[1]

    old = os.umask(umask)
    try:
        (planted := brought() / "planted").touch()
        assert brought() == planted.parent
        assert planted.exists()
        planted.parent.chmod(0o770)
        assert brought() == planted.parent
    finally:
        os.umask(old)
    assert not planted.exists()
    assert planted.parent.stat().st_mode & 0o077 == 0


def test_packages_on_the_pythonpath_count_for_this_pythonpath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas get the variable of their kernel, and the next kernel may have another."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    name, raw = wheel("mylib", "0.1", "")
    (tmp_path / name).write_bytes(raw)
    tree = tmp_path / "[tree]"
    with zipfile.ZipFile(tmp_path / name) as packed:
        packed.extractall(tree)
    (tmp_path / "requirements.txt").write_text("--find-links .\nmylib\n")
    wanted = read(BuildSpec(requirements="requirements.txt"), tmp_path)

    def place() -> str:
        """Where the package is, for a replica that has no PYTHONPATH."""
        made = environment.prepare(sys.executable, wanted, tmp_path / "cache", lambda event: None)
        command = [asyncio.run(made), "-c", "import mylib; print(mylib.__file__)"]
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.check_output(command, text=True, env=bare).strip()

    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tree}/{os.pathsep}{before}".rstrip(os.pathsep))
    assert place().startswith(str(tree))
    monkeypatch.setenv("PYTHONPATH", before)
    assert place().startswith(str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", f"{tree}/{os.pathsep}{before}".rstrip(os.pathsep))
    assert place().startswith(str(tree))
    (tree / "mylib-0.1.dist-info").rename(tree / "other-0.1.dist-info")
    assert place().startswith(str(tmp_path / "cache"))
