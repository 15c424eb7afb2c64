"""The real command ``ciao`` as a process, in a pipe or in a pseudo-terminal.

Nothing here imports ``ciao_kernel``: a test sees the command as a user does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.helpers.kernels import LINGER

WAIT = 60.0
"""Seconds that any single thing may take; a test that waits so long has failed."""
CIAO = str(Path(sys.executable).with_name("ciao"))

HEADER = "#%framework=tensorflow\n#%worker=2\n"
"""Header of a file whose job needs no TensorFlow."""
QUICK = HEADER + "print('hello')\n"
FAILS = HEADER.replace("2", "1") + "print('so far')\n1 / 0\n"
LONG = HEADER + "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
"""A job that says one line in each replica and then nothing for longer than any test."""


def until(condition: Callable[[], Any], what: str, wait: float = WAIT) -> Any:
    """Poll until a condition is true, and return what it returned."""
    end = time.monotonic() + wait
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {wait:.0f} s for {what}"
        time.sleep(0.02)
    return found


@dataclass
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)


class User:
    """A user with folders of their own, who types commands.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = folder / "work"
        self.storage = folder / "storage"
        self.config = folder / "config" / "ciao" / "config.toml"
        self.home = folder / "home"
        self.folder.mkdir(parents=True)
        self.home.mkdir()
        self.env = {
            **{name: value for name, value in os.environ.items() if not _speaks_of_us(name)},
            "HOME": str(self.home),
            "CIAO_STORAGE": str(self.storage),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_DATA_HOME": str(self.home / ".local" / "share"),
            "TERM": "xterm-256color",
        }

    def file(self, name: str, text: str | bytes) -> Path:
        """Write a file into the user's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a pipe."""
        env = {**self.env, **_lingering(words), **options.pop("env", {})}
        options.setdefault("preexec_fn", _take_interrupts)
        return subprocess.Popen(
            [CIAO, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            cwd=self.folder,
            env=env,
            **options,
        )

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> Done:
        """Run a command in a pipe to its end."""
        return self.finish(self.start(*words, env=env or {}))

    def finish(self, process: subprocess.Popen[str], wait: float = WAIT) -> Done:
        """Wait for a command that was started."""
        out, err = process.communicate(timeout=wait)
        assert "ciao_kernel/" not in err, err  # a traceback of our own
        return Done(process.returncode, out or "", err or "")

    def shell(self, script: str, **env: str) -> Done:
        """Run a bash script, for pipes and completion."""
        path = f"{Path(CIAO).parent}:{self.env['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            errors="replace",
            cwd=self.folder,
            env={**self.env, "PATH": path, **env},
            timeout=WAIT,
            preexec_fn=_take_interrupts,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def terminal(self, *words: str, columns: int = 100, rows: int = 30, **env: str) -> Terminal:
        """Start a command in a terminal."""
        env = {**self.env, **_lingering(words), **env}
        return Terminal([CIAO, *words], self.folder, env, columns, rows)

    def detach(self, name: str, text: str = LONG, *words: str) -> dict[str, Any]:
        """Start a detached job and wait until its replicas have written their first lines."""
        self.file(f"{name}.py", text)
        done = self("run", "-d", "--name", name, f"{name}.py", *words)
        assert done.code == 0, done.err
        job = self.describe(name)
        until(lambda: all(Path(one["log"]).stat().st_size for one in job["replicas"]), "lines")
        return job

    def describe(self, name: str) -> Any:
        """All that is known of a job."""
        return self("describe", name, "--output", "json").json

    def settle(self, name: str) -> Any:
        """Wait until a job is over."""
        return until(lambda: (job := self.describe(name))["settled"] and job, f"the end of {name}")

    def processes(self) -> list[psutil.Process]:
        """Supervisors and replicas of this user: their command lines name the storage."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(self.storage) in word for word in process.cmdline()):
                    found.append(process)
        return found

    def nothing_left(self, wait: float = WAIT) -> None:
        """See that no process of any job is left."""
        until(lambda: not self.processes(), "the end of all processes", wait)

    def clean(self) -> None:
        """End what a test left."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


def still(text: str) -> str:
    """What ``ciao doctor`` says, without what others on this disk change meanwhile."""
    return re.sub(r"[\d.]+ GiB free", "GiB free", text)


def _speaks_of_us(name: str) -> bool:
    kinds = ("CIAO_", "JUPYTER", "XDG_", "_ARG", "COMP_", "PYTEST")
    single = (
        "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONIOENCODING", "PYTHONUNBUFFERED",
        "KUBECONFIG",
    )  # fmt: skip
    return name.startswith(kinds) or name in single


def _lingering(words: Sequence[str]) -> dict[str, str]:
    """For the jobs alone: a command that shows settings has the built-in ones."""
    return {"CIAO_LINGER": LINGER} if words[:1] == ("run",) else {}


def _take_interrupts() -> None:
    """Undo what a shell does to commands in its background, where tests may be running."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


# ----------------------------------------------------------------------------- a terminal


class Terminal:
    """A command in a pseudo-terminal; all that it writes is kept."""

    def __init__(
        self, command: list[str], folder: Path, env: dict[str, str], columns: int, rows: int
    ) -> None:
        self.columns, self.rows = columns, rows
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._written = bytearray()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=env,
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(slave)
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        """All bytes so far."""
        return self._written.decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        """Type: ``\\x03`` is Ctrl-C."""
        os.write(self._master, keys.encode())

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.process.wait(WAIT)
        self.close()
        return code

    def hang_up(self) -> None:
        """Close the window: the kernel sends SIGHUP to what runs in it."""
        self._closing.set()
        self.close()

    def close(self) -> None:
        """Give the terminal back when its last byte is read."""
        # Not while somebody reads from it: its number would be another file's by then.
        self._reader.join(WAIT)
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def screen(self) -> list[str]:
        """The lines that stand there, those that were scrolled away included."""
        return Screen(self.columns, self.rows).feed(self.raw)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the last process has closed its end.
            while not self._closing.is_set():
                if select.select([self._master], [], [], 0.05)[0]:
                    self._written += os.read(self._master, 1 << 16)


def _own_terminal() -> None:
    _take_interrupts()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Screen:
    """What a terminal shows of what was written to it: as much of a VT100 as is in use here."""

    _PIECE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")

    def __init__(self, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._lines = [""]
        self._wrapped: set[int] = set()
        self._row = self._column = 0

    def feed(self, text: str) -> list[str]:
        """Draw, and return the lines; one that the window wrapped is one line again."""
        position = 0
        for match in self._PIECE.finditer(text):
            assert match.start() == position, f"unknown: {text[position : position + 20]!r}"
            position = match.end()
            number, command, carriage, feed, plain = match.groups()
            if carriage:
                self._column = 0
            elif feed:
                self._down()
            elif plain:
                self._put(plain)
            elif command != "m" and not number.startswith("?"):
                self._obey(command, number)
        lines: list[str] = []
        for row, line in enumerate(self._lines):
            if row in self._wrapped:
                lines[-1] += line
            else:
                lines.append(line)
        return [line.rstrip() for line in lines]

    def _obey(self, command: str, number: str) -> None:
        top = max(0, len(self._lines) - self._rows)
        if command == "A":
            self._row = max(top, self._row - int(number or 1))
        elif command == "K" and number == "2":
            self._lines[self._row] = ""
            self._wrapped.discard(self._row)
        else:
            raise AssertionError(f"unknown: {number}{command}")

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append("")

    def _put(self, text: str) -> None:
        while text:
            if self._column == self._columns:
                self._down()
                self._column = 0
                self._wrapped.add(self._row)
            part, text = text[: self._columns - self._column], text[self._columns - self._column :]
            line = self._lines[self._row].ljust(self._column)
            end = self._column + len(part)
            self._lines[self._row] = line[: self._column] + part + line[end:]
            self._column = end
