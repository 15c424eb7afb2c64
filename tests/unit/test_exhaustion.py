"""Errors that say that a limit of this process or machine is reached."""

from __future__ import annotations

import errno
import os

import pytest

from ciao_kernel import exhaustion
from ciao_kernel.jupyter import messages


def fault(code: int, *, of_processes: bool = False) -> str:
    found = exhaustion.fault_of(OSError(code, os.strerror(code)), of_processes=of_processes)
    return found.message if found else ""


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.EMFILE, "this process has too many open files; its limit is "),
        (errno.ENFILE, "this machine has too many open files"),
        (errno.ENOMEM, "this machine has no memory left"),
        (errno.EACCES, ""),
    ],
)
def test_a_limit_is_named(code: int, text: str) -> None:
    assert fault(code).startswith(text)
    assert bool(fault(code)) == bool(text)


def test_that_nothing_is_ready_to_be_read_is_no_limit() -> None:
    assert fault(errno.EAGAIN) == ""
    assert "no more processes" in fault(errno.EAGAIN, of_processes=True)


@pytest.mark.parametrize(("code", "bug"), [(errno.EMFILE, False), (errno.EACCES, True)])
def test_a_limit_is_no_bug_in_the_kernel(code: int, bug: bool) -> None:
    try:
        raise OSError(code, os.strerror(code))
    except OSError:
        shown = messages.internal_error()
    assert ("a bug in the kernel" in shown["traceback"][-1]) == bug
    assert shown["ename"] == ("PermissionError" if bug else "EnvironmentFault")
