"""The call of a program in each worker of a JAX job.

A worker that fails ends at once. Python would call the functions that JAX has registered with
``atexit``: they wait five minutes for the other workers, which wait for this one, and then all of
them are aborted (jax/_src/api.py, ``clean_up``; jax/_src/distributed.py, ``shutdown``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ciao_kernel.frameworks import in_process

_PROGRAM = (
    in_process.LEAVE
    + """
import types

program, *arguments = sys.argv[1:]

"""
    + in_process.RUN_TO_CODE
    + """
own = sys.modules["__main__"]  # kept: Python would empty it
code = run()
if code and is_connected():
    leave(code, vars(sys.modules["__main__"]))
sys.exit(code)
"""
)
"""Runs in the worker, whose image has no ciao."""


def command(python: str, program: Sequence[str], arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command of each worker.

    Args:
        python: The worker's interpreter.
        program: The program: its path, or ``-m`` and its name.
        arguments: The program's arguments.
    """
    return (python, "-u", "-c", _PROGRAM, *program, *arguments)
