"""Verbs in a working directory that was removed: they do not take the home folder for it."""

from __future__ import annotations

import sys

import pytest

from tests.integration.cli.command import LONG, QUICK, User

GONE = "mkdir gone && cd gone && rmdir ../gone && "


@pytest.mark.parametrize(
    "words",
    [
        "run train.py",
        "run -m train",
        "run --files a.csv ~/train.py",
        "cp far/worker-0:log.csv .",
        "cp train.py far/worker-0:.",
    ],
)
def test_a_relative_path_has_no_place_in_a_removed_folder(ciao: User, words: str) -> None:
    if words.startswith("cp"):
        ciao.detach("far")
    (ciao.home / "train.py").write_text(QUICK)
    done = ciao.shell(f"{GONE}ciao {words}")
    assert done.code == 1, done.err
    assert "the working directory was removed." in done.err
    assert "`cd` to it again" in done.err


def test_a_verb_without_relative_paths_works_in_a_removed_folder(ciao: User) -> None:
    ciao.detach("far", LONG)
    again = ciao.shell(f"{GONE}ciao rerun far")
    assert (again.code, "the working directory was removed." in again.err) == (1, True)
    ciao.file("here.txt", "text")
    done = ciao.shell(f"{GONE}ciao cp {ciao.folder}/here.txt far/worker-0:there.txt")
    assert (done.code, done.err) == (0, "")
    listed = ciao.shell(f"{GONE}ciao jobs")
    assert (listed.code, "far" in listed.out) == (0, True)


def test_a_program_with_an_absolute_path_runs_in_a_removed_folder(ciao: User) -> None:
    (ciao.home / "train.py").write_text(QUICK)
    done = ciao.shell(f"{GONE}ciao run ~/train.py")
    assert done.code == 0, done.err


@pytest.mark.parametrize("words", ["run", "run -m train ~/train.py"])
def test_wrong_usage_is_reported_in_a_removed_folder(ciao: User, words: str) -> None:
    done = ciao.shell(f"{GONE}ciao {words}")
    assert (done.code, "the working directory" in done.err) == (2, False)


@pytest.mark.parametrize(("python", "found"), [("python3", True), ("venv", False)])
def test_doctor_looks_up_a_command_in_a_removed_folder(
    ciao: User, python: str, found: bool
) -> None:
    (ciao.home / "venv" / "bin").mkdir(parents=True)
    (ciao.home / "venv" / "bin" / "python").symlink_to(sys.executable)
    done = ciao.shell(f"{GONE}ciao doctor", CIAO_PYTHON=python)
    assert ("replicas run /" in done.out, "directory was removed" in done.out) == (found, not found)
