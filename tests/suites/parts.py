"""Divides the files of tests/unit into parts that take about as long, one for each process.

With pytest-xdist each worker collects all 12,000 tests, and one controller hands them out, which
takes longer than the tests.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from tests.suites import known_seconds

ROOT = Path(__file__).resolve().parents[2]
_OTHER = 0.5
"""Seconds of a file that is in no list."""


@functools.cache
def _of_folder(folder: Path, part: str) -> frozenset[Path]:
    return choose(folder.rglob("test_*.py"), part)


def choose(files: Iterable[Path], part: str) -> frozenset[Path]:
    """Return the files of a part: each file is in exactly one.

    Args:
        files: All files.
        part: Its number and how many there are, as ``2/6``.
    """
    number, count = (int(word) for word in part.split("/"))
    if not 1 <= number <= count:
        raise ValueError(f"--part={part} is none: the parts are 1 to {count}")
    known = known_seconds.read()

    def seconds(file: Path) -> float:
        return known.get(str(file.relative_to(ROOT)), _OTHER)

    parts: list[list[Path]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for file in sorted(files, key=lambda file: (-seconds(file), file)):
        least = loads.index(min(loads))
        parts[least].append(file)
        loads[least] += seconds(file)
    return frozenset(parts[number - 1])


def leaves_out(file: Path, folder: Path, part: str) -> bool:
    """Return whether a file of tests is in another part.

    Args:
        file: What pytest is about to collect.
        folder: Which is divided.
        part: As :func:`choose` takes it.
    """
    tests = file.name.startswith("test_") and file.suffix == ".py"
    return tests and file.is_relative_to(folder) and file not in _of_folder(folder, part)
