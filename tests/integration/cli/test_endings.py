"""How a command ends: exit codes, interrupts, and readers that go away."""

from __future__ import annotations

import fcntl
import re
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import IO, Any

import pytest

from tests.integration.cli.command import FAILS, HEADER, LONG, QUICK, WAIT, User, until

STUBBORN = (
    HEADER.replace("2", "1")
    + "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    + "print('ready', flush=True)\ntime.sleep(600)\n"
)
FLOOD = HEADER.replace("2", "1") + "while True:\n    print('x' * 100)\n"


def follow(ciao: User, *words: str, says: str = "ready", **options: Any) -> subprocess.Popen[str]:
    """Start a command and wait until it has written a line of the job."""
    process = ciao.start(*words, **options)
    assert process.stdout
    assert says in process.stdout.readline()
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_job(ciao: User, number: signal.Signals) -> None:
    ciao.file("train.py", LONG)
    process = follow(ciao, "run", "--name", "long", "train.py")
    process.send_signal(number)
    done = ciao.finish(process)
    assert done.code == 130
    assert "long is stopped; its files stay in" in done.err
    ciao.nothing_left()
    assert ciao.describe("long")["state"] == "Stopped"


def test_a_second_interrupt_ends_at_once(ciao: User) -> None:
    ciao.file("train.py", STUBBORN)
    process = follow(ciao, "run", "--name", "long", "train.py", env={"CIAO_STOP_GRACE": "600"})
    process.send_signal(signal.SIGINT)
    until((ciao.storage / "jobs" / "long" / "stop").exists, "the first one's stop")
    process.send_signal(signal.SIGINT)
    assert ciao.finish(process).code == 130  # the first alone would wait 600 s for a replica
    ciao.nothing_left()


@pytest.mark.second("faults")
def test_a_replica_that_does_not_stop_is_said_and_killed(ciao: User) -> None:
    ciao.file("train.py", STUBBORN)
    process = follow(ciao, "run", "--name", "long", "train.py", env={"CIAO_STOP_GRACE": "8"})
    process.send_signal(signal.SIGINT)
    done = ciao.finish(process)
    assert done.code == 130
    assert "long is stopping" in done.err
    ciao.nothing_left()


def unread(pipe: IO[str] | None) -> int:
    """How many bytes are in a pipe (FIONREAD of ioctl(2))."""
    assert pipe
    size = fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(size, sys.byteorder)


def interrupt_twice(process: subprocess.Popen[str]) -> None:
    """Interrupt a command whose output nobody reads, and see it end."""

    def taken() -> bool:
        """Whether no interrupt is left that it has not heard of."""
        text = Path(f"/proc/{process.pid}/status").read_text()
        return not any(
            int(mask, 16) >> (signal.SIGINT - 1) & 1
            for mask in re.findall(r"(?:SigPnd|ShdPnd):\s*(\w+)", text)
        )

    process.send_signal(signal.SIGINT)
    until(taken, "the first interrupt to be taken")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    process.stderr.close()


def test_interrupts_end_a_command_whose_reader_sleeps(ciao: User) -> None:
    ciao.file("train.py", FLOOD)
    process = follow(ciao, "run", "--name", "flood", "train.py", says="xxx")
    log = ciao.storage / "jobs" / "flood" / "logs" / "worker-0.log"
    until(lambda: log.stat().st_size > 4_000_000, "a full pipe")
    interrupt_twice(process)
    ciao.nothing_left()


@pytest.mark.parametrize("more", [500, 1000, 2000, 3500])
def test_interrupts_end_a_command_with_a_little_output_left(ciao: User, more: int) -> None:
    """Python keeps what a full pipe did not take, if it is little, and writes it when it ends."""
    ciao.file("train.py", HEADER.replace("2", "1") + f"print('x' * {(1 << 16) + more})\n")
    assert ciao("run", "--name", "long", "train.py").code == 0
    process = ciao.start("logs", "long")
    assert process.stdout
    until(lambda: unread(process.stdout) >= 1 << 16, "a full pipe")
    interrupt_twice(process)


def test_an_interrupt_that_is_ignored_stays_ignored(ciao: User) -> None:
    """As in a script: `ciao run FILE.py &` goes on when the script is interrupted."""
    waits = "import os, time\nprint('ready', flush=True)\n"
    waits += "while not os.path.exists('go-on'): time.sleep(.01)\n"
    ciao.file("train.py", HEADER + waits)
    process = follow(
        ciao, "run", "--name", "long", "train.py",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    process.send_signal(signal.SIGINT)
    assert ciao.describe("long")["state"] == "Running"
    (ciao.storage / "jobs" / "long" / "work" / "go-on").touch()
    assert ciao.finish(process).code == 0
    assert ciao.describe("long")["state"] == "Succeeded"


def test_the_job_ends_with_a_killed_command(ciao: User) -> None:
    ciao.file("train.py", LONG)
    process = follow(ciao, "run", "train.py")
    process.kill()
    process.communicate()
    ciao.nothing_left()


def test_attach_follows_from_the_first_line_and_ends_as_the_job(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    assert ciao("run", "-d", "--name", "good", "train.py").code == 0
    done = ciao("attach", "good")
    assert done.code == 0
    assert sorted(done.out.splitlines()) == ["[worker-0] hello", "[worker-1] hello"]
    assert ciao("attach", "good", "--output", "json").json["state"] == "Succeeded"
    ciao.file("train.py", FAILS)
    assert ciao("run", "-d", "--name", "bad", "train.py").code == 0
    done = ciao("attach", "bad")
    assert done.code == 1
    assert "[worker-0] so far" in done.out
    assert "ZeroDivisionError" in done.err
    again = ciao("attach", "bad", "-o", "json")
    assert (again.code, again.json["state"]) == (1, "Failed")


def test_attach_without_a_name_takes_the_newest_job(ciao: User) -> None:
    done = ciao("attach")
    assert done.code == 1
    assert "you have no job to follow" in done.err
    ciao.file("train.py", QUICK)
    for name in ("one", "two"):
        assert ciao("run", "-d", "--name", name, "train.py").code == 0
    assert ciao("attach", "-o", "json").json["name"] == "two"


def test_attach_without_a_name_needs_no_cluster_for_a_job_of_this_machine(ciao: User) -> None:
    config = ciao.file(
        "kubeconfig",
        "clusters: [{name: far, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "contexts: [{name: far, context: {cluster: far, user: far}}]\n"
        "users: [{name: far, user: {token: t}}]\ncurrent-context: far\n",
    )
    away = {"KUBECONFIG": str(config), "CIAO_REQUEST_PATIENCE": "0.5"}
    done = ciao("attach", env=away)
    assert done.code == 1
    assert "does not answer" in done.err  # there it may be
    ciao.file("train.py", QUICK)
    assert ciao("run", "-d", "--backend", "local", "--name", "one", "train.py").code == 0
    assert ciao("attach", "-o", "json", env=away).json["name"] == "one"
    assert "does not answer" in ciao("attach", "--context", "far", env=away).err


@pytest.mark.parametrize("words", [["attach"], ["logs", "-f"]])
def test_attach_leaves_the_job_running_when_it_is_interrupted(ciao: User, words: list[str]) -> None:
    ciao.detach("long")
    process = follow(ciao, *words, "long")
    process.send_signal(signal.SIGINT)
    done = ciao.finish(process)
    assert done.code == 130
    told = "long keeps running; `ciao attach long` follows it again, `ciao delete long` stops it."
    assert told in done.err
    assert ciao.describe("long")["state"] == "Running"


def test_a_job_that_is_deleted_under_a_reader_ends_the_reader(ciao: User) -> None:
    ciao.detach("long")
    process = follow(ciao, "attach", "long")
    assert ciao("delete", "long").code == 0
    done = ciao.finish(process)
    assert done.code == 1
    assert "long" in done.err


def test_a_reader_that_has_enough_ends_the_command_quietly(ciao: User) -> None:
    ciao.file("train.py", FLOOD)
    done = ciao.shell("ciao run train.py | head -1; echo ${PIPESTATUS[0]}")
    line, code = done.out.splitlines()
    assert line.startswith("[worker-0] xxx")
    assert code == "141"  # as any program whose reader went away
    assert done.err == ""
    ciao.nothing_left()
    done = ciao.shell("ciao run train.py 2>&1 | head -1; echo ${PIPESTATUS[0]}")
    assert done.out.splitlines()[1] == "141"
    assert done.err == ""
    ciao.nothing_left()
    assert ciao.shell("ciao --help | true").err == ""
    assert ciao.shell("ciao magics | head -1").err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_said(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    done = ciao.shell("ciao run train.py > /dev/full")
    assert done.code == 1
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    assert ciao.shell("ciao jobs > /dev/full").code == 1


def test_a_limit_of_the_size_of_files_is_said(ciao: User) -> None:
    done = ciao.shell("ulimit -f 1; ciao magics > magics.txt")
    assert done.code == 1
    assert "File too large" in done.err
    assert "Traceback" not in done.err


def test_closed_streams_are_no_error(ciao: User) -> None:
    ciao.file("train.py", QUICK)
    assert ciao.shell("ciao run train.py >&- 2>&- <&-").code == 0


def test_options_and_verbs_that_do_not_exist_offer_the_nearest(ciao: User) -> None:
    for words, says in (
        (["dele"], "Did you mean delete?"),
        (["--noisy"], "no option --noisy"),
        (["jobs", "--runing"], "Did you mean --running?"),
        (["jobs", "--run"], "unknown argument --run"),  # no abbreviations: scripts would break
        (["jobs", "-o", "xml"], "invalid choice: 'xml'"),
        (["run"], "FILE.py"),
    ):
        done = ciao(*words)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
