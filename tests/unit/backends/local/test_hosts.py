"""Which machine a record is of, and how long ago something was touched on a shared storage."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ciao_kernel.backends.local import hosts, processes
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.record import Folder


def test_a_machine_is_known_by_more_than_its_name(tmp_path: Path) -> None:
    here, again = Host(tmp_path), Host(tmp_path)
    assert here.has({"host": again.identity})
    assert here.has({})  # as older records are
    assert here.has({"host": ""})
    assert hosts.name({"host": here.identity}) == os.uname().nodename
    one = Host(tmp_path, "laptop boot/pid:[1]")
    assert one.has({"host": "renamed boot/pid:[1]"})
    assert not one.has({"host": "laptop boot/pid:[2]"})  # two containers
    assert not one.has({"host": "laptop other/pid:[1]"})
    assert hosts.name({}) == ""


def test_times_are_compared_by_the_clock_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, file = Host(tmp_path), tmp_path / "file"
    file.touch()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 5000)
    assert -1 < host.age(file) < 1000
    os.utime(file, (now - 3000, now - 3000))
    assert 2999 < host.age(file) < 4000
    assert host.age(tmp_path) < 1000  # a folder too
    # Where nothing can be written, this machine's clock has to do.
    assert Host(tmp_path / "gone").age(file) > 7999
    with pytest.raises(FileNotFoundError):
        host.age(tmp_path / "gone")


def test_when_a_supervisor_lives(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a")
    folder.path.mkdir()
    pid = os.getpid()
    supervisor = {"pid": pid, "birth": processes.birth(pid), "host": "a-host"}
    status = {"supervisor": supervisor, "ended": False}
    dead = {"supervisor": {**supervisor, "birth": "1"}, "ended": False}
    here, there = Host(tmp_path, "a-host"), Host(tmp_path, "b-host")
    assert not there.is_supervisor_alive(folder, status)  # its folder is gone
    folder.write_status(status)
    assert here.is_supervisor_alive(folder, status)
    assert not here.is_supervisor_alive(folder, dead)
    # Elsewhere a process id says nothing.
    assert there.is_supervisor_alive(folder, dead)
    assert not there.is_supervisor_alive(folder, {**status, "ended": True})
    os.utime(folder.status_file, (1, 1))
    assert not there.is_supervisor_alive(folder, status)
    folder.touch_status()
    assert there.is_supervisor_alive(folder, status)
