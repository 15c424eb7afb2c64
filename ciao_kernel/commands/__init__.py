"""The verbs: ``ciao VERB …`` in a terminal, ``%ciao VERB …`` in a notebook, one code.

Each verb is a module of its name with ``arguments(parser)`` and ``run(args, face)``; a new
verb is one file and one line in :data:`VERBS`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ciao_kernel.errors import UsageError

if TYPE_CHECKING:
    from ciao_kernel.model import JobResult
    from ciao_kernel.plugins import Display
    from ciao_kernel.session.session import Session

# The texts stand here and not in the modules, because `ciao --help` and Tab want to be quick.
VERBS = {
    "run": "run a Python file as a job; its header stands in comments such as #%worker=2",
    "jobs": "list all jobs, oldest first",
    "describe": "show all that is known of a job",
    "logs": "show what the replicas of a job wrote; -f follows it to its end",
    "attach": "follow a job from its first line to its end; an interrupt leaves it running",
    "delete": "stop jobs, and remove their folders with all that they wrote there",
    "exec": "run a command in a replica: exec NAME/worker-0 -- nvidia-smi",
    "config": "show all settings, or change some: ciao config key=value",
    "doctor": "check Python, packages, kernelspec, settings and what a cluster would need",
    "magics": "list the directives, or explain one",
    "install": "register the kernel with Jupyter (pip install does it for its own environment)",
    "uninstall": "remove the kernel from Jupyter",
}

WITHOUT_SETTINGS = frozenset({"config", "doctor", "magics", "install", "uninstall"})
"""Verbs that work, and help, while a settings file is broken."""

_IN_NOTEBOOK = "`%ciao VERB --help` explains a verb. In a terminal the same verbs follow `ciao`."
_IN_TERMINAL = """\
`ciao VERB --help` explains a verb. In a notebook the same verbs follow %ciao.

Exit codes: 0 success, 1 the job failed or this machine is at fault, 2 wrong usage,
130 interrupted; of `ciao exec` the command's own.

Completion by Tab: add this line to ~/.bashrc or ~/.zshrc
  eval "$(register-python-argcomplete ciao)"
"""


@dataclass(frozen=True, slots=True)
class Face:
    """What a verb may use of the face that it was called from."""

    session: Session
    display: Display
    write: Callable[[str], Any]
    """Writes text as it is; a line brings its own end."""
    folder: Path
    terminal: bool = False
    """Whether this is the command ``ciao``, whose settings end with the command."""
    piped: bool = False
    """Whether a program reads what is written, and not a person."""
    color: bool = False
    """Whether what is written may be coloured."""


class _Done(Exception):
    """argparse has printed its help and would end the process."""


class Parser(argparse.ArgumentParser):
    """argparse that raises our errors and writes where the face writes."""

    write: Callable[[str], Any] | None = None

    def __init__(self, **options: Any) -> None:
        # An abbreviation in a script would break on the day a new option starts like it.
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of ending the process, which may be a kernel."""
        raise UsageError(f"{self.prog}: {message}.", f"`{self.prog} --help` shows how it is used.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command, not the process."""
        raise _Done

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Say that words are not understood, and what may have been meant."""
        word = words[0].partition("=")[0]
        near = difflib.get_close_matches(word, self._option_string_actions, n=1)
        hint = f"Did you mean {near[0]}? " if near and word.startswith("-") else ""
        if " -- " in (self.usage or "") and not hint:
            hint = "A command stands behind --. "
        raise UsageError(
            f"{self.prog} does not know {word}.", f"{hint}`{self.prog} --help` shows what it knows."
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and self.write is not None:
            self.write(message)


def parser(
    write: Callable[[str], Any] | None = None, prog: str = "ciao", verb: str | None = None
) -> Parser:
    """Make the parser.

    Args:
        write: Takes help.
        prog: How the user calls it.
        verb: The verb whose own arguments are wanted; only its module is imported.
    """
    from ciao_kernel import __version__

    kind = type("FaceParser", (Parser,), {"write": staticmethod(write) if write else None})
    top: Parser = kind(
        prog=prog,
        description="Train on many replicas from a notebook cell, a file or a terminal.",
        epilog=_IN_NOTEBOOK if prog.startswith("%") else _IN_TERMINAL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"ciao {__version__}")
    verbs: Any = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=kind)
    for name, text in VERBS.items():
        one = verbs.add_parser(name, help=text.replace("%", "%%"), description=text)
        if name == verb:
            module = importlib.import_module(f"ciao_kernel.commands.{name}")
            module.arguments(one)
            one.set_defaults(run=module.run, parser=one)
    return top


def parse(
    words: Sequence[str], write: Callable[[str], Any], prog: str = "ciao"
) -> argparse.Namespace | None:
    """Read what stands behind ``ciao``.

    Returns:
        None if help or the version was asked for; it is written then.

    Raises:
        UsageError: The words are wrong.
    """
    words = list(words) or ["--help"]
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] not in (*VERBS, "-h", "--help", "--version"):
        near = difflib.get_close_matches(words[0], VERBS, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{prog} has no {'option' if words[0].startswith('-') else 'verb'} {words[0]}.",
            f"{hint}`{prog} --help` lists all verbs.",
        )
    behind: list[str] = []
    if words[0] in ("run", "exec") and "--" in words:
        # Not left to argparse, which takes each further "--" out of the program's arguments.
        place = words.index("--")
        words, behind = words[:place], words[place + 1 :]
    try:
        args, unknown = parser(write, prog, words[0]).parse_known_args(words)
    except _Done:
        return None
    if unknown:
        args.parser.unknown(unknown)
    args.behind = behind
    return args


async def execute(words: Sequence[str], face: Face) -> JobResult | None:
    """Run one command line of a notebook.

    Args:
        words: What stands behind ``%ciao``.
        face: Where it was typed.

    Returns:
        The job that it ran or followed, if any.

    Raises:
        CiaoError: The words are wrong, or what they ask for failed.
    """
    args = parse(words, face.write, "%ciao")
    if args is None:
        return None
    result: JobResult | None = await args.run(args, face)
    return result


def help_text() -> str:
    """What Shift-Tab on ``%ciao`` shows."""
    return parser(prog="%ciao").format_help()
