"""Lets a process write the files of a run to the log or to a bucket."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys

from ciao_kernel.delivery.warm.agent.run import Run

_GIVER = os.path.join(".ciao", "ciao_output_keeper.py")
"""Program that gives the files of a run, beside the agent."""
_PAUSE = 2.0
"""Seconds before its second try to write to a bucket."""
_LONGEST_FAULT = 200


class FileGiver:
    """Gives the files of runs (:mod:`ciao_kernel.delivery.output.output_keeper`).

    Args:
        mark: The first characters of a marker.
        own: Folder of the agent's own files.
        here: Folder of the agent.
    """

    def __init__(self, mark: str, own: str, here: str) -> None:
        self._mark, self._own, self._here = mark, own, here

    def start(self, run: Run) -> str:
        """Start the process; return why that failed, or ""."""
        ask = {"mark": self._mark, "id": run.id, "pause": _PAUSE, **run.ask["files"]}
        ask["stream"] = os.path.join(self._own, f"stream-{run.id}")
        try:
            with open(self._words(run), "wb") as words:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", os.path.join(self._here, _GIVER), "give"],
                    stdin=subprocess.PIPE,
                    stderr=words,
                    cwd=run.ask["folder"],
                )
        except OSError as error:  # the program may have removed its folder
            return str(error.strerror)
        process.returncode = 0  # reaped by the agent
        run.giver = process.pid
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(ask).encode())  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]
        return ""

    def fault(self, run: Run, code: int) -> str:
        """Return why the files of a run are not written; "" if they are.

        Args:
            run: The run.
            code: Exit code of the process.
        """
        fault = ""
        with contextlib.suppress(OSError):
            with open(self._words(run), encoding="utf-8", errors="replace") as file:
                fault = file.read().strip().rpartition("\n")[2][-_LONGEST_FAULT:]
            os.unlink(self._words(run))
        if code and not fault:
            fault = f"the process that gives them ended with exit code {code}"
        return fault if code else ""

    def _words(self, run: Run) -> str:
        return os.path.join(self._own, f"given-{run.id}")
