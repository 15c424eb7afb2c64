"""Records that another user placed among the jobs: each verb says so, and touches nothing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.backends.local import processes
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, NoSuchJob
from ciao_kernel.model import Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Place:
    """A storage folder with one finished job, ``good``, and the verbs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = root / "storage"
        self.jobs = self.storage / "jobs"
        self.written = ""
        self.jobs.mkdir(parents=True)
        self.storage.chmod(0o755)
        self.finish("good")

    def finish(self, name: str, **status: Any) -> Folder:
        """Make a job that is over, as a supervisor leaves it."""
        folder = Folder(self.jobs / name)
        for path in (folder.path, folder.logs, folder.path / "work"):
            path.mkdir(mode=0o700)
        folder.log("worker-0").write_text(f"a line of {name}\n")
        one: dict[str, Any] = {"name": "worker-0", "role": "worker", "index": 0}
        asked = {"id": f"{name}-1", "name": name, "framework": "pytorch", "header": "", "by": "me"}
        asked |= {"created": 1.0, "detached": False, "workdir": "w", "program": "p", "grace": 1.0}
        asked |= {"owner": None, "clean": "running", "deadline": None, "host": ""}
        folder.write_job(asked | {"replicas": [one | {"command": ["true"], "env": {}}]})
        ended = {"state": "Succeeded", "since": 1.0, "exit_code": 0, "reason": ""}
        record: dict[str, Any] = {"state": "Succeeded", "since": 1.0, "reason": "", "message": ""}
        record |= {"decided_by": None, "settled": True, "ended": True}
        record |= {"supervisor": {"pid": 2**22 + 1, "birth": "1", "host": ""}}
        folder.write_status(record | {"replicas": [{"name": "worker-0", **ended}]} | status)
        return folder

    def ciao(self, *words: str) -> str:
        """Run a verb, and return what it wrote; its error is raised."""
        written: list[str] = []
        args = commands.parse(list(words), written.append)
        assert args is not None
        session = Session(Registry({}), Owner("a test"), Settings(storage=self.storage))
        caller = commands.Caller(session, None, written.append, self.root, terminal=True)  # type: ignore[arg-type]
        try:
            asyncio.run(args.run(args, caller))
        finally:
            self.written = "".join(written)
        return self.written


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "private").mkdir(mode=0o700)
    return Place(tmp_path / "private")


def seen(top: Path) -> dict[str, tuple[Any, ...]]:
    """All that a change of a tree would change."""
    found = {}
    for path in (top, *sorted(top.rglob("*"))):
        known = path.lstat()
        found[str(path)] = (known.st_mode, known.st_uid, known.st_ino, known.st_mtime_ns)
    return found


# ------------------------------------------------------------------ what is planted as `bad`


def of_another_user(folder: Folder) -> None:
    os.chown(folder.path, NOBODY, NOBODY)


def record_of_another_user(folder: Folder) -> None:
    os.chown(folder.job_file, NOBODY, NOBODY)


def status_of_another_user(folder: Folder) -> None:
    os.chown(folder.status_file, NOBODY, NOBODY)


def open_to_a_group(folder: Folder) -> None:
    folder.path.chmod(0o770)


def record_open_to_all(folder: Folder) -> None:
    folder.job_file.chmod(0o606)


def status_open_to_a_group(folder: Folder) -> None:
    folder.status_file.chmod(0o660)


def link_to_a_folder(folder: Folder) -> None:
    folder.path.rename(folder.path.parent.parent / "elsewhere")
    folder.path.symlink_to(folder.path.parent.parent / "elsewhere")


def link_to_a_record(folder: Folder) -> None:
    folder.job_file.rename(folder.path / "real.json")
    folder.job_file.symlink_to("real.json")


def link_to_a_status(folder: Folder) -> None:
    folder.status_file.rename(folder.path / "real.json")
    folder.status_file.symlink_to("real.json")


def pipe_as_record(folder: Folder) -> None:
    folder.job_file.unlink()
    os.mkfifo(folder.job_file)


def pipe_as_status(folder: Folder) -> None:
    folder.status_file.unlink()
    os.mkfifo(folder.status_file)


def gigabyte_as_record(folder: Folder) -> None:
    os.truncate(folder.job_file, 1 << 30)


def another_name(folder: Folder) -> None:
    change(folder.job_file, name="good")


def path_as_name(folder: Folder) -> None:
    change(folder.job_file, name="../jobs/bad")


def path_as_replica(folder: Folder) -> None:
    one = {"name": "../../good/logs/worker-0", "role": "worker", "index": 0}
    change(folder.job_file, replicas=[one | {"command": ["true"], "env": {}}])


def path_as_replica_of_the_status(folder: Folder) -> None:
    status = json.loads(folder.status_file.read_text())
    change(folder.status_file, replicas=[status["replicas"][0] | {"name": "../x-0"}])


def number_as_mark(folder: Folder) -> None:
    change(folder.job_file, id=7)


def wait_without_end(folder: Folder) -> None:
    change(folder.job_file, grace=float("inf"))


def text_as_process(folder: Folder) -> None:
    change(folder.status_file, supervisor={"pid": "1", "birth": "1"})


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


PLANTED: list[tuple[Callable[[Folder], None], str]] = [
    (open_to_a_group, "other users may write to"),
    (record_open_to_all, "other users may write to"),
    (status_open_to_a_group, "other users may write to"),
    (link_to_a_folder, "is a symbolic link, not a folder"),
    (link_to_a_record, "is a symbolic link, not a file"),
    (link_to_a_status, "is a symbolic link, not a file"),
    (pipe_as_record, "is a pipe, not a file"),
    (pipe_as_status, "is a pipe, not a file"),
    (gigabyte_as_record, "has 1,073,741,824 bytes"),
    (another_name, "is the record of another job, 'good'"),
    (path_as_name, "is the record of another job, '../jobs/bad'"),
    (path_as_replica, "is not a record of ciao: the replica"),
    (path_as_replica_of_the_status, "is not a record of ciao: the replica"),
    (number_as_mark, "is not a record of ciao: id"),
    (wait_without_end, "is not a record of ciao: grace"),
    (text_as_process, "is not a record of ciao: pid"),
]
GIVEN_AWAY = [of_another_user, record_of_another_user, status_of_another_user]
NAMED = [["describe"], ["logs"], ["attach"], ["delete"], ["delete", "good"], ["exec"]]


@pytest.mark.parametrize(
    ("plant", "word"),
    [
        *PLANTED,
        *(pytest.param(one, "belongs to nobody", marks=as_root) for one in GIVEN_AWAY),
    ],
)
def test_each_verb_says_so_and_touches_nothing(
    place: Place, plant: Callable[[Folder], None], word: str
) -> None:
    folder = place.finish("bad")
    plant(folder)
    before = seen(place.storage)
    for words in NAMED:
        command = [*words, "bad", *(["--", "true"] if words == ["exec"] else [])]
        with pytest.raises(BackendError) as caught:
            place.ciao(*command)
        assert not isinstance(caught.value, NoSuchJob)
        assert word in caught.value.message
        assert str(folder.path) in caught.value.message
        assert place.written == ""
    with pytest.raises(BackendError, match=word):
        place.ciao("jobs", "--all")
    assert "good" in place.written
    assert "bad" not in place.written
    with pytest.raises(BackendError, match=word):
        place.ciao("jobs", "-A", "-o", "json")
    assert [job["name"] for job in json.loads(place.written)] == ["good"]
    assert seen(place.storage) == before
    with pytest.raises(BackendError, match=word):
        place.ciao("delete", "--finished", "--yes")
    assert place.written == "good (Succeeded) and its files were removed.\n"
    after = seen(place.storage)
    assert {path: known for path, known in before.items() if "/bad" in path} == {
        path: known for path, known in after.items() if "/bad" in path
    }


def test_many_are_one_word(place: Place) -> None:
    for number in range(5):
        open_to_a_group(place.finish(f"bad{number}"))
    with pytest.raises(BackendError, match=r"bad0; .*bad1; .*bad2; and 2 more\."):
        place.ciao("jobs")


@pytest.mark.parametrize("settled", [True, False])
def test_an_innocent_process_gets_no_signal(place: Place, settled: bool) -> None:
    """Its number and start time are in the record, but it does not have the job's mark."""
    innocent = subprocess.Popen(["sleep", "600"], env={"PATH": os.defpath})
    try:
        supervisor = {"pid": innocent.pid, "birth": processes.birth(innocent.pid), "host": ""}
        place.finish("bad", supervisor=supervisor, settled=settled, ended=settled)
        place.ciao("delete", "bad")
        assert not (place.jobs / "bad").exists()
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("pid", [-1, 0, 1, 2**40])
def test_a_number_that_means_many_processes_gets_no_signal(
    place: Place, monkeypatch: pytest.MonkeyPatch, pid: int
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a signal was sent")

    monkeypatch.setattr(os, "kill", refuse)
    supervisor = {"pid": pid, "birth": processes.birth(1), "host": ""}
    place.finish("bad", supervisor=supervisor, settled=False)
    place.ciao("delete", "bad")
    assert not (place.jobs / "bad").exists()


def test_a_log_that_is_a_pipe_or_a_link_is_not_read(place: Place) -> None:
    """The program may have done that itself; no reader hangs, and nothing else is shown."""
    (place.root / "secret").write_text("secret")
    for plant in (os.mkfifo, lambda path: path.symlink_to(place.root / "secret")):
        log = place.finish("odd").log("worker-0")
        log.unlink()
        plant(log)
        with pytest.raises(BackendError, match=r"worker-0\.log is a "):
            place.ciao("logs", "odd")
        assert "secret" not in place.written
        shutil.rmtree(place.jobs / "odd")


def test_a_folder_of_the_users_own_is_no_leftover(place: Place) -> None:
    """The storage may be a folder with a folder ``jobs`` of another kind, such as a repository."""
    from ciao_kernel.backends.local.hosts import Host
    from ciao_kernel.backends.local.removal import clear_leftovers

    names = (".git", ".a-1f2e3d4c", ".b-1f2e3d4c", ".c-1f2e3d4c")
    for name in names:
        (place.jobs / name / "work").mkdir(parents=True)
    (place.jobs / ".b-1f2e3d4c").chmod(0o777)
    shutil.rmtree(place.jobs / ".c-1f2e3d4c")
    (place.root / "else" / "work").mkdir(parents=True)
    (place.jobs / ".c-1f2e3d4c").symlink_to(place.root / "else")
    for name in names:
        os.utime(place.jobs / name, (1, 1), follow_symlinks=False)
    os.utime(place.root / "else", (1, 1))
    clear_leftovers(place.jobs, Host(place.storage))
    assert sorted(path.name for path in place.jobs.iterdir()) == [
        ".b-1f2e3d4c",
        ".c-1f2e3d4c",
        ".git",
        "good",
    ]
    assert (place.root / "else" / "work").exists()
