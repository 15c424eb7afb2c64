"""Reads from pip's lines how far an installation is.

pip 24.1 and newer can report each download's bytes in lines for programs
(``--progress-bar raw``). Older releases report nothing for programs: then the files are counted
whose download pip announces, if their number is known, and the time is shown otherwise.
"""

from __future__ import annotations

import re

from ciao_kernel.model import Unit
from ciao_kernel.plugins import Step

RAW_SINCE = "24.1"
"""The version of pip that added ``--progress-bar raw``."""
_BYTES = re.compile(r"Progress (\d+) of (\d+)")
_FILE = re.compile(
    r"(?:Downloading|Using cached|Processing) (?:\S*/)?"
    r"([^/\s]+\.(?:whl|tar\.gz|zip))(?:#\S*)?(?: \(|$)"
)
_BUILD = re.compile(r"Building wheel for (\S+) .*?(: finished|$)")


class PipProgress:
    """The progress of one run of pip.

    Args:
        step: Receives the amounts.
        files: Number of packages that pip will fetch; 0 if it is unknown.
        raw: Ask pip for lines for programs; False for another pip than the kernel's, whose release
            may be too old for that.
    """

    def __init__(self, step: Step, files: int = 0, *, raw: bool = True) -> None:
        self.raw = raw
        self._step, self._files = step, files
        self._seen: set[str] = set()
        self._file = ""

    def read(self, line: str) -> bool:
        """Read a line of pip; return whether it is one for programs, which nobody else needs."""
        if match := _BYTES.fullmatch(line.strip()):
            self._step.at(int(match[1]), int(match[2]), detail=self._detail())
            return True
        if match := _FILE.match(line.strip()):
            self._file = match[1]
            self._seen.add(self._file)
            # The newest file may still be on its way, or has to be built.
            self._count(len(self._seen) - 1)
        elif match := _BUILD.match(line.strip()):
            self._file = "" if match[2] else f"building {match[1]}"
            self._count(len(self._seen) - 1)
        elif line.startswith("Installing collected packages"):
            self._file = ""
            self._count(self._files)
        return False

    def _count(self, fetched: int) -> None:
        self._step.at(max(0, min(fetched, self._files)), self._files, Unit.PACKAGES, self._file)

    def _detail(self) -> str:
        if not self._files:
            return self._file
        return f"{self._file} ({min(len(self._seen), self._files)} of {self._files})"
