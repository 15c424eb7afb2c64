"""The modules that a program has imported: those that the next zygote imports ahead."""

from __future__ import annotations

import contextlib
import json
import os
import sys


def leave_names(path: str, known: set[str]) -> None:
    """Leave the names of the modules that the program has imported, but not its own ones."""
    library = os.path.dirname(os.__file__)
    names = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name not in known and ("-packages" in file or file.startswith(library)):
            names.append(name)
    with contextlib.suppress(OSError):
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as stream:
            json.dump(names, stream)
        os.replace(f"{path}.{os.getpid()}", path)
