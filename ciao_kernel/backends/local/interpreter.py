"""Find the replicas' Python interpreter, and check which packages it has."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, UsageError
from ciao_kernel.user_path import expanded
from ciao_kernel.visible_text import short

_TIMEOUT = 60.0
"""Seconds to wait for an interpreter: the first start from a network drive may be slow."""
_ANSWER = "ciao: "
_PYTHON_ERROR = ("Traceback", 'File "')
"""Begins of lines above an error of Python; a SyntaxError has only the second."""
_ANOTHER = "Name another interpreter with %python."
_DIRECTIVE = "Set %python to a path such as ~/envs/tf/bin/python, or leave it out."


def of_setting(settings: Settings, folder: Path) -> str:
    """Return the absolute path of the interpreter that the setting ``python`` names.

    Args:
        settings: The settings, with their origins.
        folder: As for :func:`find`.

    Raises:
        EnvironmentFault: There is no such program.
    """
    return find(settings.python, folder, remedy(settings))


def remedy(settings: Settings, named: str | None = None) -> str:
    """Return how to name another interpreter, for errors of the one in use.

    Args:
        settings: The settings, with their origins.
        named: The value of ``%python``, which replaces the setting.
    """
    if named or not settings.python:
        return _ANOTHER
    origin = settings.origins.get("python", "")
    where = f", which {origin} sets" if origin else ""
    return f"Correct the setting python{where}, or leave it empty."


def install_words(python: str, requirement: str) -> str:
    """Return how to install a package for an interpreter, for a hint.

    Args:
        python: Its absolute path.
        requirement: The package, as pip takes it.
    """
    words = f"`{python} -m pip install {requirement}`"
    # IPython's command installs for its own interpreter.
    own = python == sys.executable
    return f"{words} (in a notebook: %pip install {requirement})" if own else words


def find(asked: str, folder: Path, hint: str = _DIRECTIVE) -> str:
    """Return the absolute path of the interpreter that the user named.

    Args:
        asked: A path (``~`` and paths relative to ``folder`` are supported), the folder of a
            virtual environment, or a command.
        folder: The user's working directory.
        hint: How to name another one.

    Raises:
        EnvironmentFault: There is no such program.
    """
    why = ""
    try:
        found = _found(asked, folder)
    except UsageError:
        found, why = None, ": there is no such home folder"
    except OSError as error:  # such as a name that is too long, or a closed folder
        found, why = None, f": {error.strerror}"
    except ValueError:  # a null byte, or what is not Unicode
        found, why = None, ": no file can have this name"
    if found is None:
        raise EnvironmentFault(
            f"there is no Python interpreter {short(asked)}{why}.",
            hint,
        )
    return found


def _found(asked: str, folder: Path) -> str | None:
    found = None
    if os.sep not in asked and not asked.startswith("~"):
        found = shutil.which(asked)
    if found is None:
        # Not resolve(): the path of the link, not its target, identifies a virtual environment.
        path = Path(os.path.normpath(folder / expanded(asked)))
        if path.is_dir():
            path = path / "bin" / "python"
        found = str(path) if path.is_file() and os.access(path, os.X_OK) else None
    return found


async def has(python: str, package: str, hint: str = _ANOTHER) -> bool:
    """Return whether an interpreter finds a package; the package is not imported.

    Args:
        python: The interpreter.
        package: Name of the package.
        hint: How to name another interpreter.

    Raises:
        EnvironmentFault: The interpreter does not run, or is not Python.
    """
    if python == sys.executable:
        importlib.invalidate_caches()
        with contextlib.suppress(ValueError):  # A module created by code, without a spec.
            return importlib.util.find_spec(package) is not None
        return True
    question = (
        f"import importlib.util as u; print({_ANSWER!r} + str(bool(u.find_spec({package!r}))))"
    )
    try:
        # cwd: otherwise the kernel's folder would come first in the module search.
        process = await asyncio.create_subprocess_exec(
            python,
            "-c",
            question,
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise _no_python(python, error.strerror or str(error), hint) from error
    try:
        async with asyncio.timeout(_TIMEOUT):
            answer, said = await process.communicate()
    except TimeoutError as error:
        why = f"it gave no answer for {_TIMEOUT:.0f} seconds"
        raise _no_python(python, why, hint) from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    for line in answer.decode(errors="replace").splitlines():
        if line.startswith(_ANSWER):
            return line.removeprefix(_ANSWER) == "True"
    raise _no_python(python, reason(said) or "it gave no answer", hint)


def reason(said: bytes) -> str:
    """Return the line that tells why an interpreter failed, without a full stop; "" if none does.

    The last line is that of an error of Python. Others, such as a shell or the shims of pyenv, say
    in the first one what is wrong, and what might help below it.

    Args:
        said: What it wrote to standard error.
    """
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    at = -1 if any(line.startswith(_PYTHON_ERROR) for line in lines) else 0
    return lines[at][:200].rstrip(".") if lines else ""


def _no_python(python: str, why: str, hint: str) -> EnvironmentFault:
    return EnvironmentFault(f"{python} does not run as Python: {why}.", hint)
