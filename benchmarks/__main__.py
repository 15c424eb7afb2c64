"""``python -m benchmarks [--write] [NAME …]``: run the benchmarks and print their tables."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path

from benchmarks.figure import Figure, markdown

NAMES = (
    "start",
    "command",
    "first_line",
    "latency",
    "throughput",
    "plot_png",
    "profile",
    "stacks",
    "warm",
    "local_usage",
    "cluster_command",
    "cluster_start",
    "cluster_end",
    "cluster_failure",
    "cluster_latency",
    "cluster_lines",
    "cluster_thousand",
    "transfers",
    "ways_back",
    "image_edit",
    "image_packages",
    "image_first_line",
    "gateway",
)
RESULTS = Path(__file__).with_name("results.md")
_HEAD = """# Benchmarks

Made by `make bench BENCHFLAGS=--write`: medians of runs that took turns on one machine.
Those of a cluster (`cluster_…`, `image_…`, `ways_back`) need the tests' Kubernetes:
`make cluster` raises it.
"""


def main() -> int:
    """Run; exit 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=(*NAMES, []), help="which; all if none is named"
    )
    parser.add_argument(
        "--write", action="store_true", help="keep the tables in benchmarks/results.md"
    )
    args = parser.parse_args()
    met = True
    for name in args.names or NAMES:
        print(f"==> {name}", flush=True)
        began = _machine()
        figures = []
        for figure in importlib.import_module(f"benchmarks.{name}").measure():
            figures.append(figure)
            print(_line(figure), flush=True)
            met &= figure.met
        if figures:
            print("\n" + (table := markdown(figures)))
            if args.write:
                _write(name, f"{began}\n\n{table}")
    return 0 if met else 1


def _line(figure: Figure) -> str:
    missed = "" if figure.met else f"MISSED ({figure.goal}) "
    return f"    {missed}{figure.what}: {figure.ratio:.2f}x {figure.peer_name} {figure.note}"


def _machine() -> str:
    packages = ("ipykernel", "jupyter_client", "ipython", "aiohttp")
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    return (
        f"{time.strftime('%Y-%m-%d')}, {platform.system()}, {os.cpu_count()} cores (load "
        f"{os.getloadavg()[0]:.1f} before), Python {platform.python_version()}, {versions}."
    )


def _write(name: str, text: str) -> None:
    """Replace one benchmark's section; those of the others stay."""
    old = RESULTS.read_text() if RESULTS.exists() else ""
    parts = re.split(r"^## (\w+)\n+", old, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True)) | {name: text}
    kept = [f"## {one}\n\n{sections[one].strip()}\n" for one in NAMES if one in sections]
    RESULTS.write_text("\n".join([_HEAD, *kept]))


if __name__ == "__main__":
    sys.exit(main())
