"""``python -m benchmarks [--write] [NAME …]``: run the benchmarks and print the table."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.figure import markdown

NAMES = ("start", "first_line", "throughput", "cluster")


def main() -> int:
    """Run; exit 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=(*NAMES, []), help="which; all if none is named"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the table in benchmarks/results.md"
    )
    args = parser.parse_args()
    figures = []
    for name in args.names or NAMES:
        print(f"==> {name}", flush=True)
        for figure in importlib.import_module(f"benchmarks.{name}").measure():
            figures.append(figure)
            print(
                f"    {figure.what}: {figure.ratio:.2f}x {figure.peer_name} {figure.note}",
                flush=True,
            )
    table = markdown(figures)
    print("\n" + table)
    if args.write:
        packages = ", ".join(
            f"{p} {version(p)}" for p in ("ipykernel", "jupyter_client", "ipython")
        )
        text = (
            "# Benchmarks\n\nMade by `make bench BENCHFLAGS=--write`: medians of runs that "
            f"took turns on one machine.\n{platform.system()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}, {packages}.\n\n{table}"
        )
        Path(__file__).with_name("results.md").write_text(text)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
