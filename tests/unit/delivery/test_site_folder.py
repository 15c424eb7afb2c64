"""The start of a pod's command behind the folder of ciao's own modules."""

from __future__ import annotations

import os
import subprocess
import sys

from ciao_kernel.delivery import site_folder


def test_errors_take_the_way_of_the_output() -> None:
    """Two pipes would be read by turns, and lines of one could come before those of the other."""
    program = ("sh", "-c", 'echo a; echo b >&2; echo c; echo "$PYTHONPATH" >&2')
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", site_folder.BECOME, "/work/.ciao", *program],
        env={**os.environ, "PYTHONPATH": "/own"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"a\nb\nc\n/work/.ciao{os.pathsep}/own\n"
    assert done.stderr == ""
