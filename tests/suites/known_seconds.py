"""Seconds that long tests took in an earlier run: `groups` lets these begin first.

Of tests/unit, also what each file took, by which `parts` divides them.
`python -m tests.suites.minutes --write` keeps them; what is not named is short, or new.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.suites.durations import Took

FILE = Path(__file__).with_name("known_seconds.json")
_LEAST = 3.0
"""Seconds of a test or a file that is worth a line."""


@functools.cache
def read(file: Path = FILE) -> dict[str, int]:
    """Return the seconds of tests by their node ids, without parameters, and those of files."""
    found: dict[str, int] = json.loads(file.read_text())
    return found


def write(tests: Iterable[Took], file: Path = FILE) -> None:
    """Keep what tests took, and what others took in earlier runs.

    Args:
        tests: Of one run, or of a part of all tests.
        file: Where to.
    """
    seconds: dict[str, list[float]] = defaultdict(list)
    files: dict[str, float] = defaultdict(float)
    for took in tests:
        seconds[name(took.test)].append(took.seconds)
        if took.folder == "tests/unit":
            files[took.test.split("::")[0]] += took.seconds
    means = files | {test: sum(found) / len(found) for test, found in seconds.items()}
    kept = json.loads(file.read_text()) if file.exists() else {}
    kept = {test: known for test, known in kept.items() if test not in means}
    kept |= {test: round(mean) for test, mean in means.items() if mean >= _LEAST}
    file.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    read.cache_clear()


def name(node: str) -> str:
    """Return the file and name of a test, without its class and parameters."""
    file, *_, test = node.partition("[")[0].split("::")
    return f"{file}::{test}"
