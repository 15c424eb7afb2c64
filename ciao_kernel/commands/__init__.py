"""The verbs: ``ciao VERB …`` in a terminal, ``%ciao VERB …`` in a notebook, one code.

Each verb is a module with ``HELP``, ``arguments(parser)`` and ``run(args, face)``; a new verb
is one file and one line in :data:`VERBS`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ciao_kernel.errors import UsageError
from ciao_kernel.model import Display, JobResult
from ciao_kernel.session import Session

VERBS = {
    "run": "ciao_kernel.commands.run",
    "jobs": "ciao_kernel.commands.jobs",
    "describe": "ciao_kernel.commands.describe",
    "logs": "ciao_kernel.commands.logs",
    "attach": "ciao_kernel.commands.attach",
    "delete": "ciao_kernel.commands.delete",
    "config": "ciao_kernel.commands.config",
    "doctor": "ciao_kernel.commands.doctor",
    "magics": "ciao_kernel.commands.magics",
    "install": "ciao_kernel.commands.install",
    "uninstall": "ciao_kernel.commands.uninstall",
}


@dataclass(frozen=True, slots=True)
class Face:
    """What a verb may use of the face that it was called from."""

    session: Session
    display: Display
    write: Callable[[str], Any]
    """Writes text as it is; a line brings its own end."""
    folder: Path
    terminal: bool = False
    """Whether this is ``ciao`` in a terminal, whose settings end with the command."""


class _Done(Exception):
    """argparse has printed its help and would end the process."""


class Parser(argparse.ArgumentParser):
    """argparse that raises our errors and writes where the face writes."""

    write: Callable[[str], Any] | None = None

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of ending the process, which may be a kernel."""
        raise UsageError(f"{self.prog}: {message}.", f"`{self.prog} --help` shows how it is used.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command, not the process."""
        raise _Done

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and self.write is not None:
            self.write(message)


def parser(write: Callable[[str], Any] | None = None, prog: str = "ciao") -> Parser:
    """Make the parser of all verbs. The command line uses it for completion too."""
    from ciao_kernel import __version__

    kind = type("FaceParser", (Parser,), {"write": staticmethod(write) if write else None})
    top: Parser = kind(
        prog=prog,
        description="Train on many replicas from a notebook cell, a file or a terminal.",
    )
    top.add_argument("--version", action="version", version=f"ciao {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=kind)
    for name, target in VERBS.items():
        module = importlib.import_module(target)
        verb = verbs.add_parser(name, help=module.HELP, description=module.HELP)
        module.arguments(verb)
        verb.set_defaults(run=module.run)
    return top


async def execute(words: Sequence[str], face: Face) -> JobResult | None:
    """Run one command line.

    Args:
        words: What stands behind ``ciao``.
        face: Where it was typed.

    Returns:
        The job that it ran or followed, if any.

    Raises:
        CiaoError: The words are wrong, or what they ask for failed.
    """
    top = parser(face.write, "ciao" if face.terminal else "%ciao")
    try:
        args = top.parse_args(list(words) or ["--help"])
    except _Done:
        return None
    result: JobResult | None = await args.run(args, face)
    return result


def help_text() -> str:
    """What Shift-Tab on ``%ciao`` shows."""
    return parser(prog="%ciao").format_help()


def add_output(verb: argparse.ArgumentParser) -> None:
    """Give a verb ``--output json``."""
    verb.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="form of the output"
    )
