"""The call of a program in each worker of a JAX job.

A worker that fails ends at once. Python would call the functions that JAX has registered with
``atexit``: they wait five minutes for the other workers, which wait for this one, and then all of
them are aborted (jax/_src/api.py, ``clean_up``; jax/_src/distributed.py, ``shutdown``).
"""

from __future__ import annotations

from ciao_kernel.frameworks import in_process

CALLER = in_process.Caller(
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
"""The program of each worker."""
