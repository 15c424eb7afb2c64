"""Commands to a warm replica of this machine, through a named pipe."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel.backends.local import warm_input
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.delivery.warm import FOLDER
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Replica

WORKER = Replica("worker", 0)
MOST = 1100
"""Descriptors; select.select takes 1024."""


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process has so many open files that the next one has a number above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * MOST:
        pytest.skip("this user may not open so many files")
    wanted = soft if soft == resource.RLIM_INFINITY else max(soft, 2 * MOST)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) < MOST:
            stack.callback(os.close, descriptor)
        stack.callback(os.close, descriptor)
        yield


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    made = tmp_path / "work" / FOLDER / f"{WORKER}.in"
    made.parent.mkdir(parents=True)
    os.mkfifo(made)
    return made


def test_a_command_arrives_whatever_the_number_of_open_files(
    tmp_path: Path, pipe: Path, many_files: None
) -> None:
    reader = os.open(pipe, os.O_RDWR)  # to write too: else a read ends before the writer comes
    command, got = b"x" * 200_000, bytearray()

    def read() -> None:
        while len(got) < len(command):
            got.extend(os.read(reader, 4096))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    warm_input.feed(Folder(tmp_path), WORKER, command)
    thread.join()
    os.close(reader)
    assert got == command


def test_a_command_that_nobody_reads_is_an_error(tmp_path: Path, pipe: Path) -> None:
    with pytest.raises(BackendError, match="worker-0 takes no command: No such device"):
        warm_input.feed(Folder(tmp_path), WORKER, b"x")
