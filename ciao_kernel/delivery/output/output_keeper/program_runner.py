"""The parent of the program in its container."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from subprocess import Popen
from typing import Any

from ciao_kernel.delivery.output.output_keeper.copies import copy

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(
    marks: str,
    grace: float,
    copies: str,
    limit: int,
    words: list[str],
    command: list[str],
    skip: Sequence[str] = (),
) -> int:
    """Run the program, and return its exit code in a shell's form.

    Args:
        marks: Folder that the other container sees.
        grace: Seconds from SIGTERM to SIGKILL: the pod's own time is that of the fetch.
        copies: Folder for copies of the files; "" if the other container sees the program's.
        limit: Largest number of bytes to copy.
        words: The paths of ``%output``.
        command: The program.
        skip: Folders of which nothing is copied: volumes.
    """
    files = importlib.import_module("ciao_replica_files")
    of_earlier_try = [files.CONTACT, files.TAKEN, files.STOPPED, files.TOO_LARGE, files.NOT_COPIED]
    with contextlib.suppress(OSError):
        of_earlier_try += [name for name in os.listdir(marks) if name.startswith(files.FETCHING)]
    for name in of_earlier_try:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(marks, name))
    with contextlib.suppress(OSError), open(os.path.join(marks, files.REPLICA), "w") as file:
        file.write(os.environ.get("CIAO_REPLICA", ""))
    with contextlib.suppress(OSError):
        for name in ("CIAO_OUTPUT", "CIAO_LOGDIR"):
            if name in os.environ:
                os.makedirs(os.environ[name], exist_ok=True)
    stopped: list[bool] = []
    early: list[int] = []
    child: Popen[bytes] | None = None

    def pass_on(number: int, _: Any) -> None:
        if number == signal.SIGTERM and not stopped:
            stopped.append(True)
            files.mark(marks, files.STOPPED)
            signal.setitimer(signal.ITIMER_REAL, max(grace, 0.001))
        if child is None:
            early.append(number)
        else:
            _signal(child, number)

    for one in _PASSED_ON:
        signal.signal(one, pass_on)
    child = program = Popen(command)
    signal.signal(signal.SIGALRM, lambda *_: _signal(program, signal.SIGKILL))
    for number in early:
        _signal(program, number)
    code = _exit_code(program)
    if copies and not stopped:
        try:
            copy(files, marks, copies, limit, words, skip)
        except OSError as error:  # a full disk: the program has ended as it has
            _say_not_copied(files, marks, words, files.reason(error))
    return code if code >= 0 else 128 - code


def _say_not_copied(files: Any, marks: str, words: list[str], why: str) -> None:
    """Say in the replica's log, and to the other container, that no files come back."""
    with contextlib.suppress(OSError):
        print("ciao: the files of %output could not be copied: " + why, file=sys.stderr, flush=True)
    with contextlib.suppress(OSError), open(os.path.join(marks, files.NOT_COPIED), "w") as file:
        json.dump(dict.fromkeys(words, why), file)


def _signal(program: Popen[bytes], number: int) -> None:
    """Send a signal; unlike Popen's own way it never takes the program's exit code."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(program.pid, number)


def _exit_code(program: Popen[bytes]) -> int:
    """Wait for the program's end, and return its code.

    The first process of a container also gets the ends of processes whose parents are gone.
    """
    if os.getpid() != 1:
        return program.wait()
    while True:
        pid, status = os.wait()
        if pid == program.pid:
            program.returncode = code = _code(status)
            return code


def _code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
