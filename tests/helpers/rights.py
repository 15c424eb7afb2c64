"""What a user may not read, also where root runs the tests."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator

NOBODY = 65534
"""The user of :func:`other_account`."""


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Do without root's right to read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@functools.cache
def ordinary_reader() -> tuple[str, ...]:
    """Return the words before a command that make root read only what the modes of files allow."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@functools.cache
def other_account() -> tuple[str, ...] | None:
    """Return the words before a command that make it run as NOBODY; None if that is impossible.

    Where this Python lies in root's home, the account may read everything, as it could not start
    Python otherwise. It still cannot write what is not its own.
    """
    if os.geteuid() != 0:
        return None
    words = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    for prefix in (words, (*words, *reads)):
        with contextlib.suppress(OSError):
            again = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
            argv = [*prefix, sys.executable, "-c", again]
            if subprocess.run(argv, capture_output=True, check=False).returncode == 0:
                return prefix
    return None
