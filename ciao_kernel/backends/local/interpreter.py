"""Find the replicas' Python interpreter, and ask it what it can import."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from ciao_kernel.errors import EnvironmentFault


def find(asked: str, folder: Path) -> str:
    """Return the absolute path of an interpreter that the user named.

    Args:
        asked: A path (``~`` and paths relative to ``folder`` are understood) or a command.
        folder: Where the user works.

    Raises:
        EnvironmentFault: There is no such program.
    """
    path = Path(asked).expanduser()
    if os.sep in asked or asked.startswith("~"):
        # Not resolve(): a virtual environment is known by the link, not by what it points to.
        path = Path(os.path.normpath(folder / path))
        if path.is_dir() and (path / "bin" / "python").is_file():
            path = path / "bin" / "python"
        found = str(path) if path.is_file() and os.access(path, os.X_OK) else None
    else:
        found = shutil.which(asked)
    if found is None:
        raise EnvironmentFault(
            f"there is no Python interpreter {asked}.",
            "Give %python the path of one, such as ~/envs/tf/bin/python, or leave it out.",
        )
    return found


async def has(python: str, package: str) -> bool:
    """Whether an interpreter finds a package; it is not imported.

    Raises:
        EnvironmentFault: The interpreter does not run.
    """
    if python == sys.executable:
        if package in sys.modules:
            return True
        importlib.invalidate_caches()
        return importlib.util.find_spec(package) is not None
    question = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            "-c",
            question,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(process.communicate(), 30)
    except (OSError, TimeoutError) as error:
        raise EnvironmentFault(
            f"{python} does not run: {error}.", "Name another interpreter with %python."
        ) from error
    if process.returncode not in (0, 1) or said:
        text = said.decode(errors="replace").strip().splitlines()
        raise EnvironmentFault(
            f"{python} does not run as Python: {text[-1] if text else 'it failed'}",
            "Name another interpreter with %python.",
        )
    return process.returncode == 0
