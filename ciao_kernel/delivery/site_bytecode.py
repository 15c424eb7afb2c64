"""Bytecode of ciao's own modules beside a program on this machine.

Each process of a program imports them before the program (:mod:`.site_folder`), and a job's folder
is new: without bytecode every process would compile them again. Another Python than this one finds
no bytecode of its own, and compiles them.
"""

from __future__ import annotations

import sys
from importlib.util import cache_from_source
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.delivery import site_folder
from ciao_kernel.model import Source

_known: dict[bytes, bytes] = {}
"""Bytecode of the texts that this process has compiled."""


def write(source: Source, workdir: Path) -> None:
    """Write the bytecode of the modules that start in each process.

    Args:
        source: The program, with the modules.
        workdir: Its folder, in which the modules are.

    Raises:
        OSError: It cannot be written.
    """
    if sys.pycache_prefix is not None:  # then Python looks for bytecode elsewhere
        return
    for file in source.own:
        if file.path not in site_folder.STARTED or file.data is None:
            continue
        module = workdir / file.path
        place = Path(cache_from_source(str(module)))
        if not place.parent.exists():
            private_files.make_folder(place.parent)
        if (code := _known.get(file.data)) is not None:
            with private_files.create(place) as copy:
                copy.write(code)
            continue
        import py_compile  # late: only the first job of a kernel needs it

        # Not compared with the file's time when it is read: later jobs get a copy of it.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(module), str(place), doraise=True, invalidation_mode=mode)
        place.chmod(0o600)  # not as the umask of the process has it
        _known[file.data] = place.read_bytes()
