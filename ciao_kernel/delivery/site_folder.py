"""The folder of ciao's own modules beside a program, first in a replica's ``PYTHONPATH``.

Python imports ``sitecustomize`` before a program (docs.python.org, module site). The one in this
folder is :mod:`.site_start`: it starts the parts that the job needs, and then imports the
``sitecustomize`` that it hides. Each part is a module of the folder: :mod:`.results` adds the
writer of values, :mod:`.inspection` the handler that answers where a process stands.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.delivery import site_start
from ciao_kernel.model import Source, SourceFile

FOLDER = ".ciao"
"""Folder of the modules, beside the program. Not a name that a program imports."""
BECOME = """\
import os, sys
path, folder = os.environ.get("PYTHONPATH"), sys.argv[1]
os.environ["PYTHONPATH"] = folder + (os.pathsep + path if path else "")
os.dup2(1, 2)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Runs in a pod before the command: the image may set a PYTHONPATH, which nobody else knows.

Errors take the way of the output, as on a terminal: the node reads two pipes by turns, and a line
could come before those that were written earlier, or into a traceback."""
VARIABLE = "CIAO_SITE"
"""Has the folder in a pod, for ranks of MPI: they do not inherit the variables of a command."""
_START = "sitecustomize.py"
STARTED = frozenset(
    f"{FOLDER}/{name}" for name in (_START, *(f"{part}.py" for part in site_start.PARTS))
)
"""Paths of the modules that each process of a program imports before the program."""


def add(source: Source, texts: Mapping[str, str], *, start: bool = True) -> Source:
    """Return a source with further modules in the folder.

    Args:
        source: The program, maybe with modules of other parts.
        texts: The text of each module, by file name.
        start: Whether they are parts that start in each process of the program.
    """
    known = {file.path: file for file in source.own}
    first = {_START: inspect.getsource(site_start)} if start else {}
    for name, text in {**first, **texts}.items():
        data = text.encode()
        known[f"{FOLDER}/{name}"] = SourceFile(f"{FOLDER}/{name}", data, size=len(data))
    return replace(source, own=tuple(known.values()))


def starts(source: Source) -> bool:
    """Return whether parts in the folder start in each process of the program."""
    return any(file.path == f"{FOLDER}/{_START}" for file in source.own)


def path(workdir: str) -> str:
    """Return the folder in a replica.

    Args:
        workdir: The replica's working directory.
    """
    return f"{workdir}/{FOLDER}"
