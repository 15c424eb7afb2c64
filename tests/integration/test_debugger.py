"""Processes at a prompt: forked, killed, interrupted by a signal while nobody is there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery.inspection import debug_bridge, debugger

FORKS = """
import os
def work(value):
    return value + 1
breakpoint()
child = os.fork()
if not child:
    work(6)
    os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
RAISES = """
import signal
def stop(*_):
    raise RuntimeError
signal.signal(signal.SIGUSR1, stop)
try:
    breakpoint()
    while True:
        pass
except RuntimeError:
    pass
breakpoint()
print("over")
"""


class Program:
    """A process with the debugger of a replica."""

    def __init__(self, folder: Path, text: str) -> None:
        shutil.copy(debugger.__file__, folder / "ciao_debugger.py")
        (folder / "program.py").write_text(
            f"import ciao_debugger\nciao_debugger.start({str(folder)!r})\n{text}"
        )
        self._folder = str(folder)
        self.mark = f"CIAO_JOB={folder}"
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "program.py")],
            env={**os.environ, "CIAO_JOB": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def marker(self) -> dict[str, Any]:
        """Return the next marker of the process."""
        assert self.process.stderr
        for line in self.process.stderr:
            if line.startswith(debugger.MARKER.encode()):
                found: dict[str, Any] = json.loads(line[len(debugger.MARKER) :])
                return found
        raise AssertionError("the process has ended")

    def connect(self, pid: int = 0) -> socket.socket | int:
        return debug_bridge.connect(self.mark, "", pid, [self._folder])

    def front_end(self, pid: int = 0) -> FrontEnd:
        connection = self.connect(pid)
        assert not isinstance(connection, int), connection
        return FrontEnd(connection)


class FrontEnd:
    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lines = connection, connection.makefile()

    def hears(self) -> dict[str, str]:
        said: dict[str, str] = json.loads(self._lines.readline())
        return said

    def says(self, line: str) -> dict[str, str]:
        self._connection.sendall(json.dumps({"line": line + "\n"}).encode() + b"\n")
        return self.hears()

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Any]:
    made: list[Program] = []

    def start(text: str) -> Program:
        made.append(Program(tmp_path, text))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.communicate()


def test_a_forked_process_stops_at_a_breakpoint_of_its_parent(programs: Any) -> None:
    program = programs(FORKS)
    program.marker()
    parent = program.front_end()
    parent.hears()
    parent.says("b work")
    assert parent.says("c")["end"] == "goes on"
    assert program.marker()["over"]

    found = program.marker()
    assert found["pid"] != program.process.pid
    child = program.front_end(found["pid"])
    child.hears()
    assert child.says("p value")["out"] == "6\n"
    assert child.says("c")["end"] == "goes on"
    out, err = program.process.communicate()
    assert out == b"child 7\n", err


def test_a_signal_while_nobody_is_there_leaves_the_next_prompt(programs: Any) -> None:
    program = programs(RAISES)
    program.marker()
    front = program.front_end()
    front.hears()
    front.close()
    assert program.marker()["again"]
    program.process.send_signal(signal.SIGUSR1)

    program.marker()
    front = program.front_end()
    front.hears()
    assert front.says("c")["end"] == "goes on"
    out, err = program.process.communicate()
    assert out == b"over\n", err


def test_only_a_process_with_a_front_end_is_open_elsewhere(programs: Any, tmp_path: Path) -> None:
    program = programs("breakpoint()\nimport time\nprint('on', flush=True)\ntime.sleep(600)")
    program.marker()
    front = program.front_end()
    front.hears()
    assert program.connect() == debug_bridge.OPEN
    folder = tmp_path / f"{debugger.FOLDER}{program.process.pid}"
    assert [one.name for one in folder.iterdir()] == [debugger.OPEN]

    front.says("c")
    assert program.process.stdout.readline() == b"on\n"
    assert program.connect() == debug_bridge.NOBODY
    folder.mkdir(0o700)  # as a killed process with the same number leaves it
    (folder / debugger.OPEN).write_text("1")
    assert program.connect() == debug_bridge.NOBODY
