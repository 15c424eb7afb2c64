"""Folders that are removed: set aside first, where that can be."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.local import processes, removal
from ciao_kernel.backends.local.hosts import Host
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.store import Store
from ciao_kernel.errors import BackendError, NoSuchJob
from ciao_kernel.model import Job, State
from tests.helpers.rights import ordinary_reader

DAY = 24 * 3600.0
NOBODY = {"pid": 2**22 + 1, "birth": "1"}


def made(root: Path, mark: str, folder: str = "a") -> Job:
    """A job that is over, as its folder says."""
    asked: dict[str, Any] = {
        "id": mark, "name": "a", "framework": "pytorch", "header": "", "created": 1.0, "by": "me",
        "detached": False, "workdir": "w", "program": "p", "grace": 1.0, "replicas": [],
    }  # fmt: skip
    status = {
        "supervisor": NOBODY, "state": "Succeeded", "since": 1.0, "reason": "", "message": "",
        "decided_by": None, "settled": True, "replicas": [],
    }  # fmt: skip
    (root / folder).mkdir(parents=True)
    Folder(root / folder).write_job(asked)
    Folder(root / folder).write_status(status)
    return Job("a", "local", "pytorch", (), 1.0, uid=mark)


def test_another_job_of_the_name_stays(tmp_path: Path) -> None:
    listed = made(tmp_path, "a-1")
    shutil.rmtree(tmp_path / "a")
    later = made(tmp_path, "a-2")
    jobs = Store(tmp_path, Host(tmp_path))
    asyncio.run(jobs.delete(listed))
    (found, _), *_ = asyncio.run(jobs.all())
    assert found.uid == later.uid
    asyncio.run(jobs.delete(later))
    assert list(tmp_path.iterdir()) == []
    # A folder that a submit has just made has no record yet.
    (tmp_path / "a").mkdir()
    asyncio.run(jobs.delete(later))
    assert (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise OSError(16, "Device or resource busy")

    jobs = Store(tmp_path, Host(tmp_path))
    job = made(tmp_path, "a-1")
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", busy)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(BackendError, match="/a cannot be removed completely"):
            asyncio.run(jobs.delete(job))
        assert (tmp_path / "a").exists()
    asyncio.run(jobs.delete(job))
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "rename", rename)
    job = made(tmp_path, "a-2")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(BackendError) as caught:
        asyncio.run(jobs.delete(job))
    (left,) = tmp_path.iterdir()
    assert str(left) in caught.value.message


@pytest.mark.parametrize("record", ["read_job", "read_status"])
def test_a_job_whose_records_cannot_be_read_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    def fails(_: Folder) -> None:
        raise OSError(5, "Input/output error")

    job = made(tmp_path, "a-1")
    monkeypatch.setattr(Folder, record, fails)
    with pytest.raises(BackendError, match="cannot be read: Input/output error"):
        asyncio.run(Store(tmp_path, Host(tmp_path)).delete(job))
    assert (tmp_path / "a" / "job.json").exists()


def test_what_is_set_aside_is_no_job(tmp_path: Path) -> None:
    root, host = tmp_path / "jobs", Host(tmp_path)
    made(root, "a-1", ".a-1f2e3d4c")
    jobs = Store(root, host)
    assert asyncio.run(jobs.all()) == []
    with pytest.raises(NoSuchJob):
        asyncio.run(jobs.find(".a-1f2e3d4c"))
    removal.clear_leftovers(root, host)
    assert len(list(root.iterdir())) == 1
    os.utime(root / ".a-1f2e3d4c", (1, 1))
    removal.clear_leftovers(root, host)
    assert list(root.iterdir()) == []


REMOVE = """\
import sys
from pathlib import Path
from ciao_kernel.backends.local import removal
from ciao_kernel.backends.local.record import Folder
removal.remove(Folder(Path(sys.argv[1])))
"""


def test_folders_that_their_owner_may_not_list_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    work = tmp_path / "a" / "work"
    for mode in (0o300, 0o000, 0o500):
        inner = work / f"{mode:o}" / "inner"
        inner.mkdir(parents=True)
        (inner / "file").touch()
        inner.chmod(mode)
        inner.parent.chmod(mode)
    (work / "link").symlink_to(kept)
    work.chmod(0o300)
    command = [*ordinary_reader(), sys.executable, "-c", REMOVE, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.stat().st_mode & 0o777 == 0o500  # no link is followed


@pytest.mark.parametrize("wrong", [-5 * DAY, 5 * DAY], ids=["behind", "ahead"])
def test_leftovers_are_as_old_as_the_storages_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    """This machine's clock differs from that of the file server by days."""
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + wrong)
    for name, age in (("fresh", DAY / 2), ("old", 2 * DAY)):
        (tmp_path / "jobs" / name / "work").mkdir(parents=True)
        os.utime(tmp_path / "jobs" / name, (now - age, now - age))
    removal.clear_leftovers(tmp_path / "jobs", Host(tmp_path))
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["fresh"]


def test_leftovers_that_stay_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, host = tmp_path / "jobs", Host(tmp_path)
    removal.clear_leftovers(root, host)
    for name in ("old", "older"):
        (root / name / "work").mkdir(parents=True)
        os.utime(root / name, (1, 1))
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    removal.clear_leftovers(root, host)
    assert len(list(root.iterdir())) == 2


@pytest.mark.parametrize("alive", [True, False])
def test_a_replica_that_outlived_its_job_ends_with_its_supervisor(
    tmp_path: Path, alive: bool
) -> None:
    """With %cleanPolicy=none replicas run on. If the machine restarts, none of them does."""
    made(tmp_path, "a-1")
    folder = Folder(tmp_path / "a")
    status = folder.read_status()
    assert status is not None
    one = {
        "name": "ps-0", "state": "Running", "since": 1.0, "exit_code": None, "reason": "",
        "pid": None, "restarts": 0, "last_exit": None,
    }  # fmt: skip
    own = {"pid": os.getpid(), "birth": processes.birth(os.getpid())}
    folder.write_status({**status, "supervisor": own if alive else NOBODY, "replicas": [one]})
    [(_, found)] = asyncio.run(Store(tmp_path, Host(tmp_path)).all())
    assert found.state is State.SUCCEEDED
    assert found.over is not alive
    assert [str(one.state) for one in found.replicas] == ["Running" if alive else "Lost"]


@pytest.mark.parametrize("alive", [True, False])
def test_only_a_job_that_runs_is_described_by_its_processes(tmp_path: Path, alive: bool) -> None:
    """The number of a process that has ended is soon that of another one."""
    job = made(tmp_path, "a-1")
    folder = Folder(tmp_path / "a")
    status = folder.read_status()
    assert status is not None
    own = {"pid": os.getpid(), "birth": processes.birth(os.getpid())}
    more = {"clean": "running", "deadline": None, "owner": own}
    folder.write_job({**folder.read_job(), **more})
    folder.write_status({**status, "supervisor": own if alive else NOBODY})
    facts = dict(Store(tmp_path, Host(tmp_path)).details(job).facts)
    named = {name: facts.get(name) for name in ("supervisor", "ends with")}
    process = f"process {os.getpid()}" if alive else None
    assert named == {"supervisor": process, "ends with": process}


def test_a_lost_job_ended_when_its_supervisor_was_last_known_to_live(tmp_path: Path) -> None:
    """Its status tells when it began, and the heartbeat how long it ran."""
    made(tmp_path, "a-1")
    folder = Folder(tmp_path / "a")
    status = folder.read_status()
    assert status is not None
    names = {"exit_code": None, "reason": "", "pid": None, "restarts": 0, "last_exit": None}
    ran = {**names, "name": "worker-0", "state": "Running", "since": 2.0}
    ended = {**names, "name": "worker-1", "state": "Succeeded", "since": 3.0}
    running = {**status, "state": "Running", "settled": False, "replicas": [ran, ended]}
    folder.write_status(running)
    os.utime(folder.status_file, (5000.0, 5000.0))
    jobs = Store(tmp_path, Host(tmp_path))
    [(_, found)] = asyncio.run(jobs.all())
    assert (found.state, found.since) == (State.LOST, 5000.0)
    assert [one.since for one in found.replicas] == [5000.0, 3.0]
    # A job that was decided before is not lost, and has ended then.
    folder.write_status({**running, "state": "Failed", "since": 4.0})
    _, found = asyncio.run(jobs.find("a"))
    assert (found.state, found.since) == (State.FAILED, 4.0)
