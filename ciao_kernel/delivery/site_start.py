"""Starts ciao's parts in each Python process of a replica, and the next ``sitecustomize``.

Streams without buffers (``-u``) show half a line at once, but a line is several writes, and those
of several processes get mixed. So a program that forks, as multiprocessing does, writes whole lines
from its first fork on.

This file runs in replicas as ``sitecustomize``: command, lines and tracebacks of the program stay
as they are. The image may have a ``sitecustomize`` of its own, which is imported too. Imports of
this file are made in every process of the program. So not importlib: it imports warnings, and
``invalidate_caches`` in Python 3.13 all of importlib.metadata.

The parts need Python 3.8. An older Python only gets its own ``sitecustomize``, so Python 3.6 must
understand this file: it has no ``from __future__ import annotations``.

Its import of the next ``sitecustomize`` is like that of
:mod:`~ciao_kernel.delivery.packages.pth_files`, another file alone: a module for both would have to
be sent with each, and be imported into every process.
"""

import os
import sys

PARTS = ("ciao_result_writer", "ciao_stack_handler", "ciao_debugger", "ciao_post_mortem")


def start() -> None:
    """Start the parts that are in this folder, and import the next sitecustomize."""
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.version_info >= (3, 8):  # noqa: UP036 - the image's Python, not the kernel's
        _start_parts(here)
    own = sys.modules.pop("sitecustomize")  # Python imports the next one by the same name
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or ".") != here]
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        # Python takes the module from there when this one has been run.
        sys.modules.setdefault("sitecustomize", own)


def _start_parts(here: str) -> None:
    for name in PARTS:
        if os.path.isfile(os.path.join(here, name + ".py")):
            sys.path.insert(0, here)
            try:
                part = __import__(name)
            finally:
                sys.path.remove(here)
            part.start(here)
    os.register_at_fork(before=_write_whole_lines)


def _write_whole_lines() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - contextlib would be imported into every process of the program
            stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
        except Exception:  # closed, or somebody has replaced it
            pass


if __name__ == "sitecustomize":
    start()
