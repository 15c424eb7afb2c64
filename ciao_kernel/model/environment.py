"""Variables that every replica has, on this machine and on a cluster."""

from __future__ import annotations

ALWAYS = {"PYTHONUNBUFFERED": "1"}
"""Lines arrive when the program writes them."""
LAUNCHER_PATH = "CIAO_LAUNCHER_PATH"
"""Variable with the folder where a launcher looks for its program, such as mpirun, before PATH."""
UNLESS_SET = {"PYTHONFAULTHANDLER": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "SPT_NOENV": "1"}
"""Unless ``%envvar`` or, on this machine, the kernel's environment has another value.

A segmentation fault shows Python's frames (https://docs.python.org/3/library/faulthandler.html),
and TensorFlow's C++ code logs errors, but not which instructions of the processor it uses.
setproctitle, which vLLM calls, leaves ``/proc/PID/environ`` alone: by the variables there the
processes of a replica are known (https://github.com/dvarrazzo/py-setproctitle#environment-variables).
"""
