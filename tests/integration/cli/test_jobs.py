"""The verbs that look after jobs: jobs, describe, logs, delete."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.cli.command import HEADER, LONG, QUICK, User, until

COUNT = HEADER + "for i in range(5):\n    print('line', i)\n"


def test_there_may_be_no_jobs(ciao: User) -> None:
    assert ciao("jobs").out == "There are no jobs.\n"
    assert ciao("jobs", "-o", "json").json == []
    assert ciao("delete", "--finished", "--yes").out == "There was nothing to delete.\n"
    assert ciao("delete", "--finished", "--yes", "-o", "json").json == []
    assert not (ciao.storage / "jobs").exists()


def test_jobs_and_describe_tell_all_that_is_known(ciao: User) -> None:
    ciao.detach("far")
    ciao.file("train.py", QUICK)
    assert ciao("run", "--name", "near", "train.py").code == 0
    head, far, near = ciao("jobs").out.splitlines()
    assert head.split()[:4] == ["NAME", "FRAMEWORK", "BACKEND", "STATE"]
    assert far.split()[:5] == ["far", "tensorflow", "local", "Running", "2/2"]
    assert "detached" in far
    assert near.split()[:4] == ["near", "tensorflow", "local", "Succeeded"]
    assert [job["name"] for job in ciao("jobs", "--output", "json").json] == ["far", "near"]
    assert [job["name"] for job in ciao("jobs", "--running", "-o", "json").json] == ["far"]
    job = ciao.describe("near")
    assert {"name", "state", "framework", "backend", "folder", "header", "replicas"} <= job.keys()
    text = ciao("describe", "near").out
    for part in (
        "near",
        "Succeeded",
        job["folder"],
        "%worker=2",
        *[r["log"] for r in job["replicas"]],
    ):
        assert part in text


def described(ciao: User, name: str, program: str) -> list[str]:
    """Run a program to its good end; return the lines that describe its job."""
    ciao.file(f"{name}.py", program)
    assert ciao("run", "--name", name, f"{name}.py").code == 0
    return ciao("describe", name).out.splitlines()


def test_describe_tells_which_replicas_started_again(ciao: User) -> None:
    again = (
        "#%framework=python\n#%worker=2\n#%restartPolicy=OnFailure\nimport os, pathlib\n"
        "if os.environ['CIAO_INDEX'] == '1' and not pathlib.Path('tried').exists():\n"
        "    pathlib.Path('tried').touch()\n    raise SystemExit(3)\n"
    )
    *_, head, first, second = described(ciao, "again", again)
    assert head.split() == ["replica", "state", "since", "ending", "restarts", "log"]
    assert [line.split()[-2] for line in (first, second)] == ["0", "1"]
    killed = (
        "#%framework=python\n#%worker=1\n#%retries=1\nimport os, pathlib\n"
        "if not pathlib.Path('tried').exists():\n"
        "    pathlib.Path('tried').touch()\n    os.kill(os.getpid(), 9)\n"
    )
    assert ["tries", "2"] in [line.split() for line in described(ciao, "killed", killed)]


@pytest.mark.parametrize(
    "words", [["describe"], ["logs"], ["logs", "-f"], ["attach"], ["delete", "far"]]
)
def test_a_job_that_does_not_exist_offers_the_nearest(ciao: User, words: list[str]) -> None:
    ciao.detach("far", QUICK)
    done = ciao(*words, "farr")
    assert (done.code, done.out) == (1, "")
    assert "NoSuchJob: there is no job farr" in done.err
    assert "Did you mean far?" in done.err
    assert ciao.describe("far")  # a wrong name among others: nothing is deleted
    assert "Did you mean" not in ciao(*words, "quite-another").err


def test_logs_show_each_replica_and_its_end(ciao: User) -> None:
    ciao.file("train.py", COUNT)
    assert ciao("run", "--name", "count", "train.py").code == 0
    all_lines = [f"[worker-{r}] line {i}" for r in range(2) for i in range(5)]
    assert ciao("logs", "count").out.splitlines() == all_lines
    assert ciao("logs", "count", "--tail", "2").out.splitlines() == [
        *all_lines[3:5],
        *all_lines[8:],
    ]
    assert ciao("logs", "count", "--replica", "worker-1").out.splitlines() == all_lines[5:]
    assert ciao("logs", "count", "--replica", "worker").out.splitlines() == all_lines
    assert ciao("logs", "count", "--tail", "0").out == ""
    assert ciao("logs", "count", "--tail", "99").out.splitlines() == all_lines
    followed = ciao("logs", "-f", "--tail", "1", "count")
    assert followed.code == 0
    assert sorted(followed.out.splitlines()) == ["[worker-0] line 4", "[worker-1] line 4"]
    for words, says in (
        (["--replica", "worker-2"], "There are: worker-0, worker-1."),
        (["--tail", "-1"], "--tail cannot be -1"),
        (["--tail", "x"], "expected a whole number, not 'x'"),
    ):
        done = ciao("logs", "count", *words)
        assert done.code == 2
        assert says in done.err


def test_a_long_log_is_read_from_its_end(ciao: User) -> None:
    ciao.file("train.py", HEADER + "for i in range(30_000):\n    print('line', i, 'x' * 40)\n")
    assert ciao("run", "--name", "much", "--worker", "1", "train.py").code == 0
    out = ciao("logs", "much", "--tail", "5000").out.splitlines()
    assert [int(line.split()[2]) for line in out] == list(range(25_000, 30_000))


def test_what_files_without_times_cannot_tell_is_a_usage_error(ciao: User) -> None:
    ciao.detach("far", QUICK)
    for words in (
        ["logs", "far", "--timestamps"],
        ["logs", "far", "--previous"],
        ["logs", "far", "--since", "5m"],
        ["logs", "-f", "far", "--since", "5m"],
        ["attach", "far", "--since", "5m"],
        ["describe", "far", "--output", "yaml"],
    ):
        done = ciao(*words)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith("UsageError: ")
    for verb in ("describe", "logs"):
        assert "NoSuchJob" in ciao(verb, "far", "--namespace", "x").err


def test_a_command_runs_beside_a_replica(ciao: User) -> None:
    job = ciao.detach("far")
    done = ciao("exec", "far/worker-1", "--", "sh", "-c", "echo $CIAO_REPLICA; pwd; exit 42")
    assert (done.code, done.err) == (42, "")
    assert done.out == f"worker-1\n{job['folder']}\n"
    piped = ciao.shell("head -c 3000000 /dev/zero | ciao exec -i far/worker-0 -- cat | wc -c")
    assert piped.out.strip() == "3000000"
    assert ciao("exec", "far/worker-0", "--", "sh", "-c", "kill -9 $$").code == 137
    for words, says in (
        (["far", "--", "true"], "Name one: far/worker-0, far/worker-1."),
        (["far/ps-0", "--", "true"], "no replica 'ps-0'"),
        (["far/worker-0"], "there is no command"),
        (["-i", "-t", "far/worker-0", "--", "true"], "-t connects the command to a terminal"),
    ):
        done = ciao("exec", *words)
        assert done.code == 2
        assert says in done.err
    done = ciao("exec", "far/worker-0", "--", "no-such-program")
    assert done.code == 1
    assert "no-such-program cannot be run" in done.err
    # It ends with the job, as it would in a pod.
    process = ciao.start("exec", "far/worker-0", "--", "sh", "-c", "echo here; sleep 600")
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    assert ciao("delete", "far").code == 0
    assert ciao.finish(process).code == 137


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """A user with a job ``far`` that runs, for commands beside its replicas."""
    user = User(tmp_path_factory.mktemp("far"))
    user.detach("far")
    yield user
    user.clean()


def _commands() -> list[str]:
    """What runs on this machine."""
    return [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]


def _own_sleep() -> str:
    """A command that no other run of these tests has on this machine."""
    return f"sleep {600_000_000 + os.getpid()}"


def test_an_interrupt_ends_the_command(far: User) -> None:
    sleep = _own_sleep()
    process = far.start("exec", "far/worker-0", "--", "sh", "-c", f"echo here; exec {sleep}")
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    assert far.finish(process).code == 130
    assert sleep not in _commands()


ENDS = "timeout -k 5 50 ciao exec -i far/worker-0 -- cat"
"""Reads to the end of the input; 124 where none comes."""


@pytest.mark.parametrize("empty", ["</dev/null", "0>/dev/null", "<&-"])
def test_an_input_that_cannot_be_read_is_an_empty_one(far: User, empty: str) -> None:
    """``nohup`` gives a command of a terminal one that is open for writing alone."""
    done = far.shell(f"{ENDS} {empty}")
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs /proc")
def test_an_input_that_breaks_is_said_and_is_no_end(far: User) -> None:
    copy = "sh -c 'cat > copy && touch whole'"
    done = far.shell(f"exec 3< /proc/self/mem; {ENDS.replace('cat', copy)} <&3; exit $?")
    assert (done.code, done.out) == (1, "")
    assert done.err == "EnvironmentFault: standard input cannot be read: Input/output error.\n"
    assert not list(far.storage.rglob("whole"))


def test_a_terminal_is_asked_for_where_there_is_no_input(far: User) -> None:
    done = far.shell("ciao exec -i -t far/worker-0 -- cat <&-")
    assert done.code == 2
    assert "-t connects the command to a terminal" in done.err


def test_a_command_that_has_read_enough_ends_quietly(far: User) -> None:
    done = far.shell("yes | ciao exec -i far/worker-0 -- head -1")
    assert (done.code, done.out, done.err) == (0, "y\n", "")


@pytest.mark.parametrize(
    "script",
    [
        "echo $$ > pid; exec yes",
        "trap '' TERM; echo $$ > pid; yes",
        "yes & until grep -q yes /proc/$!/comm; do sleep 0.01; done; echo $! > pid; exit 3",
    ],
    ids=["plain", "stubborn", "left-behind"],
)
def test_a_reader_that_has_enough_ends_the_command(far: User, script: str) -> None:
    job = far.describe("far")
    command = f"timeout -k 5 50 ciao exec far/worker-0 -- sh -c {shlex.quote(script)}"
    file = Path(job["folder"]) / "pid"
    file.unlink(missing_ok=True)  # that of the parameter before
    # The end of the reader ends the shell, perhaps before it has written the number.
    reader = f"{{ until [ -s {shlex.quote(str(file))} ]; do sleep 0.01; done; head -1; }}"
    done = far.shell(f"{command} | {reader}; echo ${{PIPESTATUS[0]}}")
    assert done.out.splitlines() == ["y", "141"]  # as any program whose reader went away
    assert done.err == ""
    pid = int(file.read_text())
    until(lambda: not psutil.pid_exists(pid), "the end of the command")


def test_a_slow_reader_gets_all_of_a_command_that_has_ended(far: User) -> None:
    """Its last output waits in pipes while the reader sleeps; a survivor's does not count."""
    sizes = "head -c 400000 /dev/zero; sleep 1000 & echo $! > pid"
    command = f"timeout -k 5 50 ciao exec far/worker-0 -- sh -c {shlex.quote(sizes)}"
    done = far.shell(f"{command} | {{ sleep 3; wc -c; }}; echo ${{PIPESTATUS[0]}}")
    assert done.out.splitlines() == ["400000", "0"]
    os.kill(int((Path(far.describe("far")["folder"]) / "pid").read_text()), signal.SIGKILL)


def test_a_survivor_that_floods_does_not_hold_the_end_of_a_command(far: User) -> None:
    flood = "yes & until grep -q yes /proc/$!/comm; do sleep 0.01; done; echo $! > pid; exit 3"
    command = f"timeout -k 5 50 ciao exec far/worker-0 -- sh -c {shlex.quote(flood)}"
    slow = "while head -c 100000 | grep -q y; do sleep 0.1; done"
    done = far.shell(f"{command} | {{ {slow}; }}; echo ${{PIPESTATUS[0]}}")
    assert done.out == "3\n"
    pid = int((Path(far.describe("far")["folder"]) / "pid").read_text())
    until(lambda: not psutil.pid_exists(pid), "the end of the flood, which nobody reads")


def test_the_errors_of_a_command_may_lose_their_reader_too(far: User) -> None:
    command = "timeout -k 5 50 ciao exec far/worker-0 -- sh -c 'yes >&2'"
    done = far.shell(f"{{ {command} 2>&1 >&3 | head -1; echo ${{PIPESTATUS[0]}}; }} 3>&1")
    assert done.out.splitlines() == ["y", "141"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_not_the_commands_fault(far: User) -> None:
    done = far.shell("timeout -k 5 50 ciao exec far/worker-0 -- yes > /dev/full")
    assert done.code == 1
    assert done.err == "ciao: the output cannot be written: No space left on device.\n"


def test_a_command_gets_the_terminal(far: User) -> None:
    terminal = far.terminal("exec", "-i", "-t", "far/worker-0", "--", "sh", columns=90, rows=25)
    sleep = _own_sleep()
    terminal.press(f"stty size; {sleep}\r")
    until(lambda: "25 90" in terminal.raw, "the size of the window")
    # A shell's child that is not a program yet may lose a signal.
    until(lambda: sleep in _commands(), "the program")
    terminal.press("\x03")  # the command's, not ours
    terminal.press("exit 7\r")
    assert terminal.wait() == 7


def test_a_command_starts_in_a_window_of_the_right_size(far: User) -> None:
    terminal = far.terminal(
        "exec", "-i", "-t", "far/worker-0", "--", "stty", "size", columns=90, rows=25
    )
    assert terminal.wait() == 0
    assert terminal.raw.strip() == "25 90"


def test_logs_follow_a_job_that_runs(ciao: User) -> None:
    ciao.detach("far")
    process = ciao.start("logs", "-f", "far", "--replica", "worker-1")
    assert process.stdout
    assert process.stdout.readline() == "[worker-1] ready\n"
    assert ciao("delete", "far").code == 0
    done = ciao.finish(process)
    assert done.code in (0, 1)  # its stop was seen, or its folder was gone before
    assert "far" in done.err


def test_delete_stops_what_runs_and_removes_what_is_there(ciao: User) -> None:
    job = ciao.detach("far")
    done = ciao("delete", "far")
    assert (done.code, done.out) == (0, "far (Running) and its files were removed.\n")
    assert not Path(job["folder"]).exists()
    assert ciao("jobs", "-o", "json").json == []
    ciao.nothing_left()


def test_delete_finished_leaves_what_runs(ciao: User) -> None:
    ciao.detach("far")
    ciao.detach("near", QUICK)
    ciao.settle("near")
    done = ciao("delete", "--finished", "--yes", "--output", "json")
    assert done.json == [{"name": "near", "was": "Succeeded", "backend": "local"}]
    assert [job["name"] for job in ciao("jobs", "-o", "json").json] == ["far"]
    assert ciao("delete").code == 2


def test_a_job_whose_supervisor_was_killed_is_lost_and_can_be_deleted(ciao: User) -> None:
    job = ciao.detach("far", LONG)
    for process in ciao.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # the guard ends with the supervisor
            if job["folder"] not in " ".join(process.cmdline()):
                process.send_signal(signal.SIGKILL)
    until(lambda: ciao.describe("far")["state"] == "Lost", "the loss")
    done = ciao("attach", "far")
    assert done.code == 1
    assert "JobLost" in done.err
    assert ciao("delete", "far").code == 0
    ciao.nothing_left()


def test_a_person_at_a_terminal_is_asked_before_finished_jobs_go(ciao: User) -> None:
    ciao.detach("near", QUICK)
    ciao.settle("near")
    question = "Delete 1 job, with all files? [y/N] "
    for keys, code in (("\x03", 130), ("\x04", 0), ("n\r", 0)):
        terminal = ciao.terminal("delete", "--finished")
        until(lambda shown=terminal: question in shown.raw, "the question")  # type: ignore[misc]
        terminal.press(keys)
        assert terminal.wait() == code
        assert [job["name"] for job in ciao("jobs", "-o", "json").json] == ["near"]
    terminal = ciao.terminal("delete", "--finished")
    until(lambda: question in terminal.raw, "the question")
    terminal.press("y\r")
    assert terminal.wait() == 0
    assert "near (Succeeded) and its files were removed." in terminal.raw
    unanswered = ciao("delete", "--finished")
    assert (unanswered.code, unanswered.out) == (0, "There was nothing to delete.\n")


def test_a_list_imports_nothing_that_only_runs_need(ciao: User) -> None:
    done = ciao("jobs", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.code == 0
    assert "ciao_kernel.session.session" in done.err
    for name in (
        "delivery.input.imports",
        "delivery.input.variables",
        "session.failure",
        "builders",
    ):
        assert f"ciao_kernel.{name}" not in done.err
