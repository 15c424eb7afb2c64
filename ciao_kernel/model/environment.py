"""Variables that every replica has, on this machine and on a cluster."""

from __future__ import annotations

ALWAYS = {"PYTHONUNBUFFERED": "1"}
"""Lines arrive when the program writes them."""
UNLESS_SET = {"PYTHONFAULTHANDLER": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
"""Unless ``%envvar`` or, on this machine, the kernel's environment has another value.

A segmentation fault shows Python's frames (https://docs.python.org/3/library/faulthandler.html),
and TensorFlow's C++ code logs errors, but not which instructions of the processor it uses."""
