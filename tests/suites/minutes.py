"""`python -m tests.suites.minutes`: where the minutes of the last run went, from its junit files.

python -m tests.suites.minutes           # print the table and the slowest tests
python -m tests.suites.minutes --write   # and keep it: here, in tests/README.md, for the order
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.suites import durations, known_seconds
from tests.suites.durations import Took

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "build" / "tests"
"""A junit file for each part of a run; `make` names them."""
_BETWEEN = re.compile(r"(<!-- minutes -->\n).*?(<!-- end -->)", re.DOTALL)


def read(file: Path) -> list[Took]:
    """Return what each test of a junit file took."""
    found = []
    for case in ElementTree.parse(file).iter("testcase"):
        folder = _folder(case.get("classname", ""))
        cpu = (p.get("value", "0") for p in case.iter("property") if p.get("name") == "cpu")
        test = f"{folder}::{case.get('name')}"
        found.append(Took(test, float(case.get("time", 0)), float(next(cpu, "0"))))
    return found


def _folder(name: str) -> str:
    """Turn `tests.unit.magics.test_values.TestIt` into the path of its file."""
    parts = name.split(".")
    last = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    return "/".join(parts[: last + 1]) + ".py"


def main(argv: Sequence[str]) -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.minutes", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep what the run has shown")
    parser.add_argument("--folder", type=Path, default=FILES, help="of the junit files")
    options = parser.parse_args(argv)
    tests = [took for file in sorted(options.folder.rglob("*.xml")) for took in read(file)]
    if not tests:
        print(f"{options.folder} has no junit file; `make test` writes them", file=sys.stderr)
        return 1
    table = durations.table(tests)
    print("\n".join(durations.slowest(tests)), "", *table, sep="\n")
    if options.write:
        page = ROOT / "tests" / "README.md"
        text = "\n".join(table)
        page.write_text(_BETWEEN.sub(lambda m: f"{m[1]}{text}\n{m[2]}", page.read_text()))
        known_seconds.write(tests)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
