"""The termination message of a pod with values of ``%output``: foreign input, taken apart here."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.delivery.output import large_values, packed_tables
from ciao_kernel.delivery.output.result_writer import INDEX, MARK

_NAMES = re.compile(r'\{"names":\[[^\]]*\]')


def unpack(message: str, target: Path) -> bool:
    """Save the values of a termination message as files; return whether it has any.

    A pod's message is foreign input: names and sizes are checked, and what is wrong is left out.

    Args:
        message: The message.
        target: Folder for the files; created if it is missing.
    """
    if not message.startswith(MARK):
        return False
    text = message.removeprefix(MARK)
    index = parsed(text) or _cut(text)
    if index is None:
        return False
    private_files.make_folders(target, target)
    for name, entry in entries(index):
        data = entry.pop("data", None)
        if not large_values.is_file(name, entry.get("file")):
            continue
        file = target / entry["file"]
        if not isinstance(data, str):
            file.unlink(missing_ok=True)  # of an earlier try
            continue
        try:
            came = base64.b64decode(data, validate=True)
            if packed_tables.is_table(file.name):
                came = packed_tables.unpacked(came)
            file.write_bytes(came)
        except ValueError:
            file.unlink(missing_ok=True)
    # Other followers write it too, also of this process or with its number in another pod.
    part = target / f".{INDEX}.{secrets.token_hex(8)}"
    try:
        part.write_text(json.dumps(index), encoding="utf-8")
        part.replace(target / INDEX)  # at once, because cells read it
    finally:
        part.unlink(missing_ok=True)
    return True


def names_files(message: str) -> bool:
    """Return whether some values of a termination message are files in its pod."""
    if not message.startswith(MARK) or '"digest"' not in message:
        return False  # asked at each change of a job: most messages need not be read
    return any(entry.get("digest") for _, entry in entries(parsed(message[len(MARK) :]) or {}))


def parsed(text: str) -> dict[str, Any] | None:
    """Return an index of values; None if the text is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _cut(text: str) -> dict[str, Any] | None:
    """Return what is left of a message whose end is missing; None if it is something else.

    A node keeps 12 KiB of messages for all containers of a pod, so of each an equal part (kubelet,
    ``normalizeStatus``): with more than three, some of which administrators may add, it cuts them.
    """
    found = _NAMES.match(text)
    head = parsed(f"{found.group()}}}") if found else None
    return {**head, "values": {}, "cut": True} if head else None


def entries(index: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what an index has of each variable, and nothing that only looks like one."""
    values = index.get("values")
    for name, entry in values.items() if isinstance(values, dict) else ():
        if name.isidentifier() and isinstance(entry, dict):
            yield name, entry
