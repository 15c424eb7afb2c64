"""The files of values that a termination message cannot hold: they come as files of ``%output`` do.

The message has the beginning of each file's digest, so a value is never that of an earlier attempt
or try. What a pod sends is foreign input: other names are not taken.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ciao_kernel import private_files
from ciao_kernel.delivery.output import packed_tables
from ciao_kernel.delivery.replica_files import VALUES

FOLDER = "large"
"""Folder in that of a replica's values; it has no other files."""
_RECORD = ".arrived.json"
_SUFFIXES = frozenset({"json", "npy", "npz", "safetensors", "bin", "parquet", "csv"})


def is_file(name: str, file: object) -> bool:
    """Return whether a file's name is the one that a writer gives to a value."""
    return isinstance(file, str) and file in {f"{name}.{suffix}" for suffix in _SUFFIXES}


def is_value(path: str) -> bool:
    """Return whether a path beside a program is that of a value, and not of the user's files."""
    return f"{path}/".startswith(VALUES)


class LargeValues:
    """The files of one replica.

    Args:
        place: Folder for the values of the replica.
    """

    def __init__(self, place: Path) -> None:
        self._base, self._folder = place, place / FOLDER

    def put(self, path: str, part: Path, digest: str) -> None:
        """Take a whole file, unless no value has such a name, or its table is refused.

        Args:
            path: Its path beside the program.
            part: The file.
            digest: Its SHA-256.
        """
        if (file := _file_of(path)) is None:
            part.unlink(missing_ok=True)
            return
        private_files.make_folders(self._folder, self._base)
        try:
            if packed_tables.is_table(file):
                packed_tables.unpack(part)
        except ValueError as error:
            part.unlink(missing_ok=True)
            self._note({file: {"fault": str(error)}})
            return
        part.replace(self._folder / file)
        self._note({file: {"digest": digest}})

    def note_faults(self, faults: Mapping[str, str]) -> None:
        """Record why some files do not come.

        Args:
            faults: The reasons, by their paths beside the program.
        """
        found = {file: {"fault": why} for path, why in faults.items() if (file := _file_of(path))}
        if found:
            private_files.make_folders(self._folder, self._base)
            self._note(found)

    def find(self, file: str, digest: str) -> Path | None:
        """Return the path of a file; None if it is not here.

        Args:
            file: Its name.
            digest: The beginning of its SHA-256.
        """
        path, known = self._folder / file, str(self._record(file).get("digest", ""))
        return path if digest and known.startswith(digest) and path.is_file() else None

    def fault(self, file: str) -> str:
        """Return why a file did not come; "" if that is not known."""
        return str(self._record(file).get("fault", ""))

    def _record(self, file: str) -> dict[str, Any]:
        found = self._read().get(file)
        return found if isinstance(found, dict) else {}

    def _read(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self._folder / _RECORD).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}

    def _note(self, more: Mapping[str, Any]) -> None:
        part = self._folder / f"{_RECORD}.part"
        part.write_text(json.dumps({**self._read(), **more}), encoding="utf-8")
        part.replace(self._folder / _RECORD)


def _file_of(path: str) -> str | None:
    """Return the name of a value's file; None if the path is that of none."""
    file = path.removeprefix(VALUES)
    name = file.partition(".")[0]
    return file if is_value(path) and name.isidentifier() and is_file(name, file) else None
