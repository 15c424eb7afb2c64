"""The commands of the containers, as words of a command line."""

from __future__ import annotations

import json
import os
import sys

from ciao_kernel.delivery.output.output_keeper.copies import WITHOUT
from ciao_kernel.delivery.output.output_keeper.program_runner import run
from ciao_kernel.delivery.output.output_keeper.to_bucket import send
from ciao_kernel.delivery.output.output_keeper.to_claim import save
from ciao_kernel.delivery.output.output_keeper.to_log import tell
from ciao_kernel.delivery.output.output_keeper.to_registry import push
from ciao_kernel.delivery.output.output_keeper.until_fetched import keep
from ciao_kernel.delivery.output.output_keeper.warm_run import give


def main(arguments: list[str]) -> None:
    """Do what the command of a container asks for."""
    if arguments == ["give"]:
        sys.exit(give(json.load(sys.stdin)) or 0)
    kind, place, seconds, *rest = arguments
    if kind == "keep":
        keep(place, float(seconds), rest)
    elif kind in ("send", "push"):
        work = send if kind == "send" else push
        sys.exit(work(place, float(rest[0]), float(rest[1]), int(rest[2]), rest[3:]) or 0)
    elif kind == "save":
        words, skip = _without(rest[3:])
        sys.exit(save(place, float(rest[0]), int(rest[1]), rest[2], words, skip) or 0)
    elif kind == "tell":
        tell(place, float(rest[0]), int(rest[1]), rest[2:])
    else:
        at = rest.index("--")
        words, skip = _without(rest[2:at])
        command = rest[at + 1 :]
        sys.exit(run(place, float(seconds), rest[0], int(rest[1]), words, command, skip))


def _without(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the paths of ``%output``, and the folders behind them of which nothing is taken."""
    at = words.index(WITHOUT) if WITHOUT in words else len(words)
    return words[:at], words[at + 1 :]


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main(sys.argv[1:])
