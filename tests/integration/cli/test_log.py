"""``ciao -v``, ``ciao log`` and ``ciao doctor --report`` in a terminal."""

from __future__ import annotations

from tests.integration.cli.command import QUICK, User


def test_verbose_commands_write_the_log_to_standard_error(ciao: User) -> None:
    (ciao.folder / "train.py").write_text(QUICK)
    quiet = ciao("run", "train.py", "--name", "quiet")
    some = ciao("-v", "run", "train.py", "--name", "some")
    all_ = ciao("-vv", "run", "train.py", "--name", "much", "--", "-v")
    assert (quiet.code, some.code, all_.code) == (0, 0, 0), (quiet.err, some.err, all_.err)
    assert "ciao_kernel" not in quiet.err
    assert "some is submitted to local" in some.err
    assert " DEBUG " not in some.err
    assert "much is submitted to local" in all_.err
    assert " DEBUG " in all_.err
    assert "submitted" not in quiet.out + some.out + all_.out


def test_the_log_has_the_records_of_all_commands(ciao: User) -> None:
    assert ciao("log").out == "The log is empty.\n"
    (ciao.folder / "train.py").write_text(QUICK)
    for name in ("first", "second"):
        assert ciao("run", "train.py", "--name", name).code == 0
    shown = ciao("log").out
    assert shown.index(": first: Succeeded") < shown.index(": second: Succeeded")
    assert ciao("log", "--lines", "1").out.endswith(": second: Succeeded\n")


def test_a_report_for_a_bug_report(ciao: User) -> None:
    (ciao.folder / "train.py").write_text(QUICK)
    assert ciao("run", "train.py", "--name", "first").code == 0
    address = "https://ada:hunter2@registry.example/team"
    done = ciao("doctor", "--report", env={"CIAO_REGISTRY": address})
    assert done.code == 0, done.err
    assert "hunter2" not in done.out
    assert str(ciao.home) not in done.out
    parts = [line for line in done.out.splitlines() if line.startswith("## ")]
    assert parts[1:] == ["## Versions", "## Settings", "## Checks", "## Log"]
    assert "registry.example/team" in done.out
    assert "\nipykernel " in done.out
    assert ": first: Succeeded" in done.out


def test_a_report_is_text(ciao: User) -> None:
    done = ciao("doctor", "--report", "--output", "json")
    assert done.code == 2
    assert "a report is text" in done.err


def test_a_damaged_log_is_shown(ciao: User) -> None:
    folder = ciao.storage / "log"
    folder.mkdir(parents=True)
    (folder / "ciao.log").write_bytes(b"one\n\xff\xfe\ntwo\n")
    assert ciao("log").out.splitlines()[::2] == ["one", "two"]
