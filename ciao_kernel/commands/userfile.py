"""Change lines of the user's settings file, and keep all other lines unchanged.

Different spellings of a key are equal: ``on-shutdown`` is ``onShutdown``. The changed text is
parsed before it is written: if this module does not understand the form of a file, it refuses
the file and never damages it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ciao_kernel import file_lock
from ciao_kernel.errors import EnvironmentFault, SettingError
from ciao_kernel.magics.table import key

Value = str | int | float
_STRING = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')"""
_ENTRY = re.compile(
    rf"""(?P<before>[ \t]*(?P<key>[A-Za-z0-9_-]+|{_STRING})[ \t]*=[ \t]*)
        (?P<value>{_STRING}|[^\s"'\#\[{{][^\s\#]*)
        (?P<after>[ \t]*(?:\#.*)?)""",
    re.X,
)
_TABLE = re.compile(r"[ \t]*\[")


def save(file: Path, values: Mapping[str, Value]) -> None:
    """Set some keys.

    Args:
        file: The user's file; it is created if it does not exist.
        values: New values by key, with the spelling for keys that the file does not have yet.

    Raises:
        SettingError: The file is not TOML, or a value in it takes several lines.
        EnvironmentFault: The file cannot be read or written.
    """
    target = file.resolve()  # A link into a folder of dotfiles stays a link.
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Without the lock, one of two simultaneous commands would overwrite the other's change. Not
        # every network drive supports locks.
        lock = file_lock.block(target.parent, required=False)
    except OSError as error:
        raise _unwritable(file, error) from error
    with lock:
        _save(target, file, values)


def _save(target: Path, file: Path, values: Mapping[str, Value]) -> None:
    """Change the file ``target``; errors show the user's path ``file``."""
    try:
        text = target.read_bytes().decode() if target.exists() else ""
        old = tomllib.loads(text)
    except OSError as error:
        raise EnvironmentFault(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise SettingError(f"{file} is not TOML: {error}.", "Fix this line first.") from None
    new = text
    for name, value in values.items():
        new = _set(new, name, value)
    if not _says(new, old, values):
        lines = ", ".join(f"{name} = {_literal(value)}" for name, value in values.items())
        raise SettingError(
            f"{file} sets this in a form that cannot be changed automatically.",
            f"Open it and write: {lines}",
        )
    try:
        _replace(target, new.encode())
    except OSError as error:
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"{file} cannot be written: {error.strerror}.",
        "For one terminal, set a variable such as CIAO_STORAGE instead.",
    )


def _set(text: str, name: str, value: Value) -> str:
    """Change each line that sets a key; if there is no line, add it before the first table."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    root = next((place for place, line in enumerate(lines) if _TABLE.match(line)), len(lines))
    found = False
    for place, line in enumerate(lines[:root]):
        body = line.rstrip("\r\n")
        match = _ENTRY.fullmatch(body)
        if match and key(match["key"].strip("\"'")) == key(name):
            changed = match["before"] + _literal(value) + match["after"]
            lines[place] = changed + line[len(body) :]
            found = True
    if not found:
        if root and not lines[root - 1].endswith(("\n", "\r")):
            lines[root - 1] += end
        lines.insert(root, f"{name} = {_literal(value)}{end}")
    return "".join(lines)


def _says(text: str, old: Mapping[str, Any], values: Mapping[str, Value]) -> bool:
    """Return whether a text has the new values, and keeps all other values."""
    try:
        new = tomllib.loads(text)
    except ValueError:
        return False
    wanted = {key(name): value for name, value in values.items()}
    others = {name: value for name, value in old.items() if key(name) not in wanted}
    set_now = {name: value for name, value in new.items() if key(name) in wanted}
    return (
        {name: value for name, value in new.items() if name not in set_now} == others
        and {key(name) for name in set_now} == wanted.keys()
        and all(value == wanted[key(name)] for name, value in set_now.items())
    )


def _literal(value: Value) -> str:
    if isinstance(value, str):
        # JSON strings are valid in TOML, except for DEL and for surrogate pairs.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{value:.12g}"


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
