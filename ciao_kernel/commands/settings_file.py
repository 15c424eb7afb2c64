"""Save settings in the user's file, so that no other process reads or writes a part of it.

:mod:`ciao_kernel.commands.toml_edit` changes the text.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from ciao_kernel import file_lock
from ciao_kernel.commands import toml_edit
from ciao_kernel.errors import EnvironmentFault, SettingError


def save(file: Path, values: Mapping[str, toml_edit.Change]) -> None:
    """Set some keys.

    Args:
        file: The user's file; it is created if it does not exist.
        values: New values by key, with the spelling for keys that the file does not have yet; None
            removes a key.

    Raises:
        SettingError: The file is not TOML, or a key in it has a form that cannot be changed.
        EnvironmentFault: The file cannot be read or written.
    """
    target = file.resolve()  # A link into a folder of dotfiles stays a link.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Without the lock, one of two simultaneous commands would overwrite the other's change. Not
        # every network drive supports locks.
        lock = file_lock.block(target.parent, required=False)
    except OSError as error:
        raise _unwritable(file, error, values) from error
    with lock:
        _save(target, file, values)


def _save(target: Path, file: Path, values: Mapping[str, toml_edit.Change]) -> None:
    """Change the file ``target``; errors show the user's path ``file``."""
    try:
        text = target.read_bytes().decode() if target.exists() else ""
        tomllib.loads(text)
    except OSError as error:
        raise EnvironmentFault(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingError(f"{file} is not TOML: {error}.", "Fix this line first.") from None
    new = toml_edit.changed(text, values)
    if new is None:
        lines = ", ".join(
            f"{name} = {toml_edit.literal(value)}" if value is not None else f"no {name}"
            for name, value in values.items()
        )
        raise SettingError(
            f"{file} sets this in a form that cannot be changed automatically.",
            f"Open it and write: {lines}",
        )
    try:
        _replace(target, new.encode())
    except OSError as error:
        raise _unwritable(file, error, values) from error


def _unwritable(
    file: Path, error: OSError, values: Mapping[str, toml_edit.Change]
) -> EnvironmentFault:
    variables = " ".join(f"{_variable(name)}=…" for name in values)  # a value may be a password
    return EnvironmentFault(
        f"{file} cannot be written: {error.strerror}.",
        f"For one terminal, use the environment instead: `export {variables}`. For one kernel, "
        "write %ciao config without --save in a cell.",
    )


def _variable(name: str) -> str:
    """Return the variable of a setting: ``CIAO_ON_SHUTDOWN`` for ``onShutdown``."""
    return "CIAO_" + re.sub("(?=[A-Z])", "_", name).upper()


def _replace(target: Path, data: bytes) -> None:
    """Write a file atomically: a kernel that starts now reads the old file or the new file."""
    descriptor, part = tempfile.mkstemp(prefix=".config-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            if target.exists():
                os.fchmod(descriptor, target.stat().st_mode & 0o777)
            stream.flush()
            os.fsync(descriptor)
        Path(part).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(part).unlink()
        raise
