"""The storage folder: its modes, whatever the umask is, and users who share one."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.helpers.rights import NOBODY, other_account
from tests.integration.cli.command import CIAO, HEADER, WAIT, Done, User

FILE = HEADER.replace("worker=2", "worker=1") + "import os\nprint('umask', oct(os.umask(0)))\n"
as_root = pytest.mark.skipif(other_account() is None, reason="only root can be other users")


@pytest.fixture
def other(ciao: User, readable: Path) -> Iterator[User]:
    """A user of another account, with a home of their own."""
    (readable / "other").mkdir()
    user = User(readable / "other")
    for path in (user.root, *user.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    yield user
    user.clean()


@pytest.fixture
def readable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that other accounts can reach, as pytest's own cannot be."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def run(user: User, *words: str, account: Sequence[str] = (), umask: int = -1) -> Done:
    """Run a command to its end, in another account or with an umask of its own."""
    process = subprocess.Popen(
        [*account, CIAO, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=user.folder,
        env={**user.env, "PYTHONDONTWRITEBYTECODE": "1"},
        umask=umask,
    )
    out, err = process.communicate(timeout=WAIT)
    assert "Traceback" not in err, err
    return Done(process.returncode, out, err)


def open_to_others(top: Path) -> list[str]:
    """All files and folders whose mode is not the one that ciao promises."""
    wrong = []
    for path in (top, *top.rglob("*")):
        known = path.lstat()
        wanted = {0o700} if stat.S_ISDIR(known.st_mode) else {0o600, 0o700}
        if stat.S_IMODE(known.st_mode) not in wanted:
            wrong.append(f"{oct(known.st_mode)} {path}")
    return wrong


@pytest.mark.second("trials", only="0o0")
@as_root
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000, 0o777], ids=oct)
def test_modes_do_not_follow_the_umask(other: User, umask: int) -> None:
    """As a user without root's rights: with an umask of 777 they cannot enter their new folders."""
    other.file("train.py", FILE)
    other.file("data/one.csv", "1")
    other.file("tool.sh", "#!/bin/sh\n").chmod(0o755)
    for path in other.folder.rglob("*"):
        os.chown(path, NOBODY, NOBODY)
    account = other_account() or ()
    for name in ("a", "b"):  # the second uses what the first has made
        words = ("run", "--name", name, "--files", "data tool.sh", "train.py")
        done = run(other, *words, account=account, umask=umask)
        assert done.code == 0, done.err
        assert f"umask {umask:#o}" in done.out  # the program keeps its own
    assert open_to_others(other.storage) == []
    for name in ("one.csv", "tool.sh"):
        (copy,) = (other.storage / "jobs" / "a" / "work").rglob(name)
        assert bool(copy.stat().st_mode & 0o100) == (name == "tool.sh")
    assert run(other, "jobs", account=account, umask=umask).out.count("Succeeded") == 2
    assert run(other, "logs", "a", account=account, umask=umask).code == 0
    assert run(other, "delete", "--finished", "--yes", account=account, umask=umask).code == 0
    assert list((other.storage / "jobs").iterdir()) == []
    assert (other.storage / "log" / "ciao.log").stat().st_size > 0


@pytest.mark.second("faults")
@as_root
def test_users_who_share_a_storage_have_a_folder_each(
    ciao: User, other: User, readable: Path
) -> None:
    shared = readable / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for user, account, name in ((ciao, (), "root"), (other, other_account() or (), "nobody")):
        user.storage = shared
        user.env["CIAO_STORAGE"] = str(shared)
        os.chown(user.file("train.py", FILE), NOBODY, NOBODY)
        first = run(user, "run", "--name", "a", "train.py", account=account)
        assert first.code == 0, first.err
        word = f"so your jobs are in a folder of your own: {shared / name}"
        assert word in first.out + first.err
        second = run(user, "run", "--name", "b", "train.py", account=account)
        assert word not in second.out + second.err
        assert (shared / name).stat().st_mode & 0o777 == 0o700
        assert (shared / name / "log" / "ciao.log").stat().st_mode & 0o777 == 0o600
        assert f"so your jobs are in {shared / name}" in run(user, "doctor", account=account).out
    assert sorted(path.name for path in shared.iterdir()) == ["nobody", "root"]
    # Root may read all records, and believes only its own.
    assert run(ciao, "jobs").out.count("Succeeded") == 2
    assert run(ciao, "delete", "--finished", "--yes").out.count("removed") == 2
    assert len(list((shared / "nobody" / "jobs").iterdir())) == 2


@as_root
def test_a_storage_of_another_user_is_closed(ciao: User, other: User, readable: Path) -> None:
    """Without a place for the second user, the error names the owner and the setting."""
    shared = readable / "shared"
    shared.mkdir(mode=0o755)
    other.env["CIAO_STORAGE"] = str(shared)
    os.chown(other.file("train.py", FILE), NOBODY, NOBODY)
    done = run(other, "run", "train.py", account=other_account() or ())
    assert done.code == 1
    assert f"{shared / 'nobody'} cannot be created: Permission denied" in done.err.replace(
        "\n", " "
    )
    assert "belongs to root" in done.err
    assert "storage=/some/folder" in done.err
    assert list(shared.iterdir()) == []


@as_root
def test_root_in_the_home_of_a_user_leaves_the_users_log_alone(other: User) -> None:
    """As with ``sudo -E``: a log of root would end that of the user."""
    done = run(other, "jobs", account=other_account() or ())
    assert done.code == 0, done.err
    log = other.storage / "log" / "ciao.log"
    before = log.read_bytes()
    assert before
    assert run(other, "jobs").code == 0
    assert log.read_bytes() == before
    assert log.stat().st_uid == NOBODY
    assert (other.storage / "root" / "log" / "ciao.log").stat().st_uid == 0


def test_a_log_that_others_placed_is_not_written(ciao: User, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    (ciao.storage / "log").mkdir(parents=True)
    log = ciao.storage / "log" / "ciao.log"
    for plant in (lambda: log.symlink_to(victim), lambda: os.mkfifo(log)):
        plant()
        assert ciao("jobs").code == 0
        assert ciao("log").err.startswith("EnvironmentFault: the log cannot be read: ")
        log.unlink()
    assert victim.read_text() == "mine\n"


def test_a_pipe_in_place_of_a_record_stops_no_command(ciao: User) -> None:
    (ciao.storage / "jobs" / "bad").mkdir(parents=True)
    os.mkfifo(ciao.storage / "jobs" / "bad" / "status.json")
    done = ciao("jobs")
    assert (done.code, done.out) == (1, "There are no jobs on this machine.\n")
    assert "status.json is a pipe, not a file" in done.err.replace("\n", " ")
