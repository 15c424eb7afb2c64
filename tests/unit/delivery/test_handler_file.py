"""The handler in a process of a replica, by the file in which it is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery.inspection import handler_access, stack_handler

PROCESS = """\
import importlib.util, os, sys
handler, missing = sys.argv[1:]
if missing:
    vars(os).pop("memfd_create", None)
spec = importlib.util.spec_from_file_location("ciao_stack_handler", handler)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.start()
ready, over = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.write(ready[1], b".")
    os.read(over[0], 1)
    os._exit(0)
os.read(ready[0], 1)
print(os.getpid(), child, "ctypes" in sys.modules, flush=True)
sys.stdin.read()
os.write(over[1], b".")
os.waitpid(child, 0)
"""
"""Starts the handler, forks, and waits until its input ends."""
REUSES = """\
import importlib.util, os, sys
handler, path = sys.argv[1:]
spec = importlib.util.spec_from_file_location("ciao_stack_handler", handler)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.start()
number = module._file[0]
os.closerange(3, 20)
own = os.open(path, os.O_WRONLY | os.O_CREAT)
assert own == number
child = os.fork()
if not child:
    os.write(own, b"of the child")
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""
"""Closes what it has inherited, as daemons do, opens a file of its own, and forks."""


@pytest.mark.parametrize("missing", ["", "memfd_create"], ids=["usual", "older build"])
def test_a_process_and_its_child_have_a_file(missing: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, stack_handler.__file__, missing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    with process:
        parent, child, by_c_library = process.stdout.readline().split()
        assert int(parent) == process.pid
        assert by_c_library == str(bool(missing))  # its import takes time in each process
        for pid in (int(parent), int(child)):
            path = handler_access.find(pid)
            opened = handler_access.open_file(path, pid)
            assert opened is not None
            with os.fdopen(opened, "rb") as file:
                assert file.read() == b""
        process.stdin.close()
    assert process.returncode == 0


def test_a_file_of_the_program_that_has_the_number_by_now_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "own"
    command = [sys.executable, "-c", REUSES, stack_handler.__file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_text() == "of the child"
