"""Caches forget what nobody uses, and nothing else."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ciao_kernel import disk_cache
from ciao_kernel.backends.local import processes

DAY = 24 * 3600


def entry(folder: Path, name: str, days: float, mark: str = "") -> Path:
    """A folder that was used so many days ago."""
    made = folder / name
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "file").touch()
    told = made / mark
    if mark:
        told.touch()
    when = time.time() - days * DAY
    os.utime(told, (when, when))
    return made


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    entry(tmp_path, "old", 31)
    entry(tmp_path, "new", 29)
    (tmp_path / "old.json").touch()
    os.utime(tmp_path / "old.json", (1, 1))
    entry(tmp_path, "killed.gone", 40)

    found = disk_cache.prune(tmp_path, 30)

    assert [path.name for path in found] == ["old", "old.json"]
    assert names(tmp_path) == ["new"]
    assert disk_cache.prune(tmp_path, 30) == []


def test_a_mark_tells_of_a_folder_that_changes(tmp_path: Path) -> None:
    entry(tmp_path, "used", 31)
    (tmp_path / "used" / "done").touch()
    os.utime(tmp_path / "used", (1, 1))
    entry(tmp_path, "unused", 31, "done")
    entry(tmp_path, "half-made", 31)
    entry(tmp_path, "being-made", 0)

    disk_cache.prune(tmp_path, 30, "done")

    assert names(tmp_path) == ["being-made", "used"]


def test_use_is_noted(tmp_path: Path) -> None:
    old = entry(tmp_path, "old", 31, "done")
    disk_cache.used(old / "done")
    disk_cache.used(tmp_path / "gone")
    assert disk_cache.prune(tmp_path, 30, "done") == []


def test_what_is_locked_or_needed_stays(tmp_path: Path) -> None:
    entry(tmp_path, "locked", 31)
    entry(tmp_path, "needed", 31)
    with (tmp_path / "locked.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert disk_cache.prune(tmp_path, 30, busy=lambda one: one.name == "needed") == []
    assert names(tmp_path) == ["locked", "needed"]


def test_what_is_used_at_that_very_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = entry(tmp_path, "old", 31, "done")
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        disk_cache.used(path / "done")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    assert disk_cache.prune(tmp_path, 30, "done") == []
    assert (old / "deep" / "file").exists()


def test_a_folder_that_is_not_there_or_not_ours(tmp_path: Path) -> None:
    assert disk_cache.prune(tmp_path / "gone", 30) == []
    (tmp_path / "file").touch()
    assert disk_cache.prune(tmp_path / "file", 30) == []


def test_a_process_names_the_environment_that_it_runs(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "min"
    (mine / "bin").mkdir(parents=True)
    (mine / "bin" / "python").symlink_to(sys.executable)
    argv = [str(mine / "bin" / "python"), "-c", "input(print(flush=True))"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()  # by now the system knows its command line
        assert processes.name(mine)
        assert not processes.name(other)
        process.communicate(b"\n")
    assert not processes.name(mine)


def test_only_what_this_user_alone_can_have_written_counts(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    assert not disk_cache.is_own(entry)
    entry.mkdir(mode=0o755)
    assert disk_cache.is_own(entry)
    (tmp_path / "link").symlink_to(entry)
    assert not disk_cache.is_own(tmp_path / "link")
    entry.chmod(0o775)
    assert not disk_cache.is_own(entry)
