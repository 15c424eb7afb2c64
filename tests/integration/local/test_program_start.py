"""A program starts as `subprocess` would start it, and it is said why one cannot be started."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ciao_kernel.backends.local import program_start


def run(
    folder: Path,
    command: list[str],
    prepare: Callable[[], None] = lambda: None,
    **environment: str,
) -> tuple[int, str]:
    """Return the exit code and the output of a program."""
    file = folder / "output"
    with file.open("wb") as output:
        environment = {"PATH": os.environ["PATH"], **environment}
        pid = program_start.start(command, str(folder), environment, output.fileno(), prepare)
    while (code := program_start.exit_code(pid)) is None:
        time.sleep(0.005)
    return code, file.read_text()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_its_exit_code_or_its_signal(tmp_path: Path) -> None:
    assert run(tmp_path, python("raise SystemExit(7)")) == (7, "")
    assert run(tmp_path, ["sh", "-c", "kill -9 $$"]) == (-9, "")


def test_folder_variables_input_and_output(tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.getcwd(), os.environ['WORD'], repr(sys.stdin.read()), flush=True)"
    )
    code += "; print('error', file=sys.stderr)"
    assert run(tmp_path, python(code), WORD="ä") == (0, f"{tmp_path} ä ''\nerror\n")


def test_it_leads_a_session_of_its_own(tmp_path: Path) -> None:
    assert run(tmp_path, python("import os; print(os.getsid(0) == os.getpid())")) == (0, "True\n")


def test_it_ignores_no_signal_that_python_ignores(tmp_path: Path) -> None:
    ignored = int(run(tmp_path, ["grep", "SigIgn", "/proc/self/status"])[1].split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert signal.getsignal(number) is signal.SIG_IGN
        assert not ignored & 1 << number - 1


def test_no_descriptor_is_inherited(tmp_path: Path) -> None:
    with (tmp_path / "other").open("w"):
        _, text = run(tmp_path, ["sh", "-c", "ls -l /proc/$$/fd"])
    assert text.count(str(tmp_path / "output")) == 2
    assert "other" not in text


@pytest.mark.parametrize(
    ("command", "number"),
    [(["no-such-program"], errno.ENOENT), (["/"], errno.EACCES), (["/no/program"], errno.ENOENT)],
)
def test_a_program_that_cannot_be_started(tmp_path: Path, command: list[str], number: int) -> None:
    before = set(psutil.Process().children())
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        run(tmp_path, command)
    assert (caught.value.errno, caught.value.filename) == (number, command[0])
    assert not set(psutil.Process().children()) - before


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output, pytest.raises(FileNotFoundError) as caught:
        program_start.start(["true"], "/no/folder", {}, output.fileno(), lambda: None)
    assert caught.value.filename == "/no/folder"


@pytest.mark.parametrize("error", [OSError(errno.EPERM, "no", "worker-0"), RuntimeError("no")])
def test_what_cannot_be_prepared_does_not_begin(tmp_path: Path, error: Exception) -> None:
    def prepare() -> None:
        raise error

    with pytest.raises(OSError, match="no"):
        run(tmp_path, ["touch", "ran"], prepare)
    assert not (tmp_path / "ran").exists()


def test_its_input_is_empty_and_can_be_written_to(tmp_path: Path) -> None:
    assert run(tmp_path, ["sh", "-c", "echo x >&0 && cat && echo wrote"]) == (0, "wrote\n")


@pytest.mark.parametrize("command", [["\0"], ["/\ud800"], []])
def test_a_command_that_is_none(tmp_path: Path, command: list[str]) -> None:
    with pytest.raises(OSError, match=r"null|surrogates|empty") as caught:
        run(tmp_path, command)
    assert caught.value.filename == (command[0] if command else "")


def test_an_argument_that_the_system_cannot_take(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="null byte"):
        run(tmp_path, ["true", "\0"])
