"""``ciao log``: show the last lines of ciao's own log, for a developer or a bug report."""

from __future__ import annotations

import argparse
import os
from collections import deque
from pathlib import Path

from ciao_kernel import log, private_files
from ciao_kernel.commands import Caller
from ciao_kernel.errors import EnvironmentFault, UsageError


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add ``--lines`` and ``--all``."""
    verb.epilog = "`ciao doctor` shows the path of the file, `ciao doctor --report` adds versions."
    verb.add_argument(
        "--lines", type=int, default=50, metavar="N", help="show N lines, 50 if this is left out"
    )
    verb.add_argument(
        "--all",
        action="store_true",
        help="show the lines of all kernels and commands; in a terminal always",
    )


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the lines of this kernel, or those of the file.

    Raises:
        UsageError: The number of lines is negative.
        EnvironmentFault: The file cannot be read.
    """
    if args.lines < 0:
        raise UsageError(f"--lines cannot be {args.lines}.", "Use a number of lines from 0 up.")
    if args.all or caller.terminal:
        lines = tail(caller.session.settings.own_storage, args.lines)
    else:
        lines = "\n".join(log.recent()).splitlines()[-args.lines :] if args.lines > 0 else []
    caller.write("".join(f"{line}\n" for line in lines or ["The log is empty."]))


def tail(storage: Path, lines: int) -> list[str]:
    """Return the last lines of the file, oldest first.

    Args:
        storage: This user's storage folder.
        lines: Their number at most.

    Raises:
        EnvironmentFault: The file cannot be read.
    """
    found: deque[str] = deque(maxlen=max(0, lines))
    for path in log.files(storage):
        try:
            with (
                private_files.opened_file(path) as descriptor,
                os.fdopen(descriptor, encoding="utf-8", errors="replace", closefd=False) as stream,
            ):
                found.extend(line.rstrip("\n") for line in stream)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise EnvironmentFault(f"{path} cannot be read: {error.strerror}.") from error
        except private_files.Untrusted as error:
            raise EnvironmentFault(f"the log cannot be read: {error}.") from error
    return list(found)
