"""The process of TensorBoard that belongs to a kernel or to a command of a terminal."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import importlib.util
import json
import logging
import os
import secrets
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

from ciao_kernel.config.storage import OwnFolder
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.session.tensorboard import serve
from ciao_kernel.visible_text import short, visible

_log = logging.getLogger(__name__)

FOLDER = "tensorboard"
"""Folder in the storage; each process has a folder of its own in it."""
_START = 120.0
"""Seconds in which TensorBoard has to begin."""
_END = 2.0
_ANSWER = 5.0
"""Seconds in which it has to tell what it shows."""
_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Reaches this machine, whatever proxy the user has."""


def check_installed() -> None:
    """Check that this Python has TensorBoard.

    Raises:
        EnvironmentFault: It has none.
    """
    importlib.invalidate_caches()  # it may have been installed by the cell before
    if importlib.util.find_spec("tensorboard") is None:
        raise EnvironmentFault(
            f"%tensorboard needs TensorBoard, which is not installed for {sys.executable}.",
            f"Install it: `{sys.executable} -m pip install tensorboard`, or in a notebook "
            "`%pip install tensorboard`; no restart is needed.",
        )


class Server:
    """One process of TensorBoard; it ends with this process, whatever ends this one.

    Args:
        storage: This user's storage, for the folder that TensorBoard shows.
        python: The interpreter that has TensorBoard.
    """

    def __init__(self, storage: OwnFolder, python: str = sys.executable) -> None:
        self._storage, self._python = storage, python
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._lock = threading.Lock()
        self.logdir: Path | None = None
        """The folder that it shows; None before the first start."""

    @property
    def runs(self) -> bool:
        """Return whether the process runs."""
        process = self._process  # close() in another thread forgets it
        return process is not None and process.poll() is None

    def place(self) -> Path:
        """Return the folder that TensorBoard shows; it exists then."""
        if self.logdir is None or not self.logdir.is_dir():
            name = f"{os.getpid()}-{secrets.token_hex(4)}"
            self.logdir = self._storage.prepare(FOLDER, name)
        return self.logdir

    async def start(self) -> str:
        """Start TensorBoard unless it runs; return its address when it answers.

        Raises:
            EnvironmentFault: It does not start.
        """
        try:
            return await asyncio.to_thread(self._start)
        except OSError as error:
            raise EnvironmentFault(
                f"TensorBoard did not start: {error}.", "The job runs without it."
            ) from error

    async def runs_of(self, name: str) -> bool:
        """Return whether TensorBoard has read event files of a job."""
        return await asyncio.to_thread(self._has, name)

    def _has(self, name: str) -> bool:
        try:
            with _LOCAL.open(f"{self._address}data/runs", timeout=_ANSWER) as answer:
                found = json.load(answer)
        except (OSError, ValueError, http.client.HTTPException) as error:  # busy, or has ended
            _log.info("TensorBoard did not tell its runs: %s", error)
            return False
        return any(f"{run}/".startswith(f"{name}/") for run in found)

    def close(self) -> None:
        """End the process, and remove the folder with its links."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()  # it removes its folder, and ends
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:  # it has not begun to serve
                process.kill()
                process.wait()
        if self.logdir is not None:
            serve.remove(str(self.logdir))
            self.logdir = None

    def _start(self) -> str:
        with self._lock:  # two cells on two threads
            if self.runs:
                return self._address
            logdir = self.place()
            words = serve.words(logdir)
            command = [self._python, "-P", str(Path(serve.__file__)), str(logdir), str(os.getpid())]
            with words.open("wb") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in a terminal is for the command
                )
            self._process = process
            late = threading.Timer(_START, process.kill)
            late.start()
            assert process.stdout is not None
            address = process.stdout.readline().decode(errors="replace").strip()
            late.cancel()
            if not address.startswith("http://127.0.0.1:"):
                process.kill()
                process.wait()
                raise EnvironmentFault(
                    f"TensorBoard did not start: {_last(words)}.",
                    f"`{Path(self._python).name} -m tensorboard.main --logdir .` shows more. The "
                    "job runs without it.",
                )
            self._address = address
            _log.info("TensorBoard is at %s", address)
            return address


def _last(words: Path) -> str:
    lines = words.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return visible(short(lines[-1].strip().rstrip("."), 200)) if lines else "it said nothing"
