"""Write the tables of directives into README.md and docs/magics.md, from the code.

Run it after a change to ciao_kernel/magics/table.py: ``python docs/generate.py``. With
``--check`` it changes nothing and exits with 1 where a table is stale; a unit test does the
same.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from ciao_kernel.magics import explain
from ciao_kernel.magics.table import Table
from ciao_kernel.registry import Registry

ROOT = Path(__file__).resolve().parent.parent
FILES: dict[str, Callable[[Table], str]] = {
    "README.md": explain.markdown,
    "docs/magics.md": explain.reference,
}
MARKS = re.compile(r"(<!-- directives -->\n).*?(<!-- /directives -->)", re.DOTALL)


def updated(text: str, table: str) -> str:
    """Return a text with the table between its marks; a text without marks stays as it is."""
    return MARKS.sub(lambda match: f"{match[1]}\n{table}\n{match[2]}", text)


def stale(root: Path = ROOT) -> dict[Path, str]:
    """The files whose table is not the code's, with what they should hold."""
    # Only what ciao itself brings: the docs must not depend on what is installed beside it.
    table = Registry(third_party={}).table
    found = {}
    for name, write in FILES.items():
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if (wanted := updated(text, write(table))) != text:
            found[path] = wanted
    return found


def main() -> int:
    """Update the files, or only say which are stale."""
    parser = argparse.ArgumentParser(description="Write the tables of directives into the docs.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    check = parser.parse_args().check
    found = stale()
    for path, text in found.items():
        print(f"{'stale' if check else 'updated'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
