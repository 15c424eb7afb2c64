"""The folder of a run: its files are unpacked there."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import shutil
import tarfile
from typing import Any

_PRIVATE = ".ciao-warm"
"""Folder of the agent's own files, below the root of its runs."""


class RunFolders:
    """The folders of the runs in this replica, which replicas of a machine may share.

    Args:
        root: Where they are.
        keeps: Whether all of them stay, not only the last two.
    """

    def __init__(self, root: str, *, keeps: bool) -> None:
        self.root = root
        self.own = os.path.join(root, _PRIVATE)
        self._keeps = keeps

    def make(self) -> None:
        """Make the folder of the agent's own files."""
        os.makedirs(self.own, exist_ok=True)

    def open_input(self) -> int:
        """Return the descriptor of commands: standard input, or on this machine a named pipe."""
        name = os.environ.get("CIAO_REPLICA", "")
        path = os.path.join(self.own, f"{name}.in")
        if not self._keeps or not name:
            return 0
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # for writing too: it never ends

    def unpack(self, ask: dict[str, Any]) -> str:
        """Write the files of a run into a new folder; return it.

        Args:
            ask: The command; its archive is taken out.

        Raises:
            OSError, ValueError, tarfile.TarError: The files cannot be written.
        """
        folder = os.path.join(self.root, f"run-{ask['id']}")
        part = os.path.join(self.own, f"run-{ask['id']}-{os.getpid()}")
        if not self._keeps:
            shutil.rmtree(os.path.join(self.root, f"run-{ask['id'] - 2}"), ignore_errors=True)
        if os.path.isdir(folder):
            return folder
        os.makedirs(part)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(ask.pop("tar")))) as tar:
            # Python 3.12 and 3.13 warn without it, and older releases may lack it.
            safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extractall(part, **safe)
        for where, target in ask.get("links", ()):
            place = os.path.join(part, where)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(target, place)
        try:
            os.rename(part, folder)  # all files at once: another replica may have been faster
        except OSError:
            if not os.path.isdir(folder):
                raise
            shutil.rmtree(part, ignore_errors=True)
        return folder
