"""The verbs: shared code of ``ciao VERB …`` in a terminal and ``%ciao VERB …`` in a notebook.

Each verb is a module of the same name with ``arguments(parser)`` and ``run(args, caller)``; a new
verb needs one file and one row in :data:`.verb_table.VERBS`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ciao_kernel.commands import wrong_words
from ciao_kernel.commands.verb_table import VERBS
from ciao_kernel.errors import EnvironmentFault, UsageError
from ciao_kernel.user_path import expanded

if TYPE_CHECKING:
    from ciao_kernel.model import JobResult
    from ciao_kernel.plugins import Console, Display, Elsewhere
    from ciao_kernel.session.session import Session

_WIDTH = 80
_VERBOSE = ("-v", "-vv", "-vvv", "--verbose")
_IN_NOTEBOOK = "`%ciao VERB --help` explains a verb. In a terminal the same verbs follow `ciao`."
_IN_TERMINAL = """\
`ciao VERB --help` explains a verb. In a notebook the same verbs follow %ciao.

Exit codes: 0 success, 1 the job failed or there is a problem on this machine, 2 wrong usage,
130 interrupted. `ciao exec` has the exit code of its command.

Completion by Tab: add this line to ~/.bashrc or ~/.zshrc
  eval "$(register-python-argcomplete ciao)"
"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a verb, in a terminal or a notebook: its session, display and output."""

    session: Session
    display: Display
    write: Callable[[str], Any]
    """Writes text unchanged; a line must end with a line feed."""
    folder: Path
    """The working folder, for what needs none; :meth:`folder_of` is for paths of the user."""
    terminal: bool = False
    """True for the command ``ciao``, whose settings end with the command."""
    piped: bool = False
    """True if a program, not a person, reads the output."""
    color: bool = False
    """True if the output may be coloured."""
    ask: Callable[[str], Awaitable[str]] | None = None
    """Shows a question and returns the line that a person types; None if nobody can answer."""
    console: Console | None = None
    """Where prompts of replicas are opened in a notebook; None if it has no input."""
    folder_removed: bool = False
    """True if the working folder was removed; :attr:`folder` is another one then."""

    def folder_of(self, path: str = "") -> Path:
        """Return the folder that a path of the user is relative to.

        Args:
            path: The path; "" stands for paths that are not known yet.

        Raises:
            EnvironmentFault: The path is relative, and the working folder was removed.
            UsageError: It begins with a home folder that does not exist.
        """
        if self.folder_removed and not expanded(path).is_absolute():
            raise EnvironmentFault(
                "the working directory was removed.", "`cd` to it again, or to another folder."
            )
        return self.folder

    @property
    def prompts(self) -> Console | Elsewhere | None:
        """The place where breakpoint() of a new job opens its prompt; None if nobody can answer."""
        if self.ask is None:
            return self.console
        from ciao_kernel.plugins import Elsewhere

        return Elsewhere()


class _Done(Exception):
    """Signal that argparse has printed its help and would end the process."""


class Parser(argparse.ArgumentParser):
    """Argument parser that raises ciao's errors and writes to the caller's output."""

    write: Callable[[str], Any] | None = None
    _helps = False

    def __init__(self, **options: Any) -> None:
        # An abbreviation in a script would break when a new option begins with the same letters.
        super().__init__(allow_abbrev=False, **options)

    def _get_formatter(self) -> argparse.HelpFormatter:
        """Return a formatter; argparse makes one for each argument, only help needs the width."""
        if self._helps:
            return super()._get_formatter()
        kind: Any = self.formatter_class
        made: argparse.HelpFormatter = kind(prog=self.prog, width=_WIDTH)
        return made

    def format_help(self) -> str:
        """Return the help, as wide as the terminal."""
        self._helps = True
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of ending the process, which may be a kernel."""
        message, hint = wrong_words.explained(message, self._option_string_actions)
        raise UsageError(f"{self.prog}: {message}.", f"{hint}`{self.prog} --help` shows the usage.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the command, not the process."""
        raise _Done

    def take_more(self, words: Sequence[str], args: argparse.Namespace) -> bool:
        """Add words after an option to those before it, for argparse takes only the first group.

        Its own way, ``parse_intermixed_args``, does not know verbs.

        Args:
            words: Words that argparse has left.
            args: The other ones, parsed.

        Returns:
            False if the verb takes no more words, or some of them are options.
        """
        several = next((one for one in self._get_positional_actions() if one.nargs == "*"), None)
        if several is None or any(word.startswith("-") for word in words):
            return False
        setattr(args, several.dest, [*getattr(args, several.dest), *words])
        return True

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Raise UsageError for unknown words, with what may be meant as a hint."""
        name, equals, _ = words[0].partition("=")
        hint = wrong_words.for_word(
            words[0], self.prog, self.usage or "", self._option_string_actions
        )
        raise UsageError(  # no value is shown: it may be a password
            f"{self.prog}: unknown argument {name}{'=…' if equals else ''}.",
            f"{hint}`{self.prog} --help` lists arguments.",
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        if message and self.write is not None:
            self.write(message)


def parser(
    write: Callable[[str], Any] | None = None, prog: str = "ciao", verb: str | None = None
) -> Parser:
    """Make the parser.

    Args:
        write: Receives the help text.
        prog: The command that the user types.
        verb: The verb whose arguments are needed; only its module is imported.
    """
    from ciao_kernel import __version__

    kind = type("WritingParser", (Parser,), {"write": staticmethod(write) if write else None})
    top: Parser = kind(
        prog=prog,
        description="Train on many replicas from a notebook cell, a file or a terminal.",
        epilog=_IN_NOTEBOOK if prog.startswith("%") else _IN_TERMINAL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if not prog.startswith("%"):  # In a notebook, `%ciao log` shows what -vv shows here.
        top.add_argument(
            "-v",
            "--verbose",
            action="count",
            default=0,
            help="write the log to the standard error: -v jobs and faults, -vv also each request",
        )
    top.add_argument("--version", action="version", version=f"ciao {__version__}")
    verbs: Any = top.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=kind)
    for name, known in VERBS.items():
        one = verbs.add_parser(name, help=known.help.replace("%", "%%"), description=known.help)
        if name == verb:
            module = importlib.import_module(f"ciao_kernel.commands.{name}")
            module.arguments(one)
            one.set_defaults(run=module.run, parser=one)
    return top


def parse(
    words: Sequence[str], write: Callable[[str], Any], prog: str = "ciao"
) -> argparse.Namespace | None:
    """Parse the words after ``ciao``.

    Returns:
        None if help or the version was requested; it has then been written.

    Raises:
        UsageError: The words are invalid.
    """
    words = list(words) or ["--help"]
    if words[0] == "help":
        words = [*words[1:], "--help"]
    if prog.startswith("%") and (words[0].endswith("?") or words[1:] == ["?"]):  # as in IPython
        words = [*filter(None, [words[0].rstrip("?")]), "--help"]
    first = next((word for word in words if prog.startswith("%") or word not in _VERBOSE), "--help")
    if first not in (*VERBS, "-h", "--help", "--version"):
        near = wrong_words.for_verb(first)
        hint = f"Did you mean {near}? " if near else ""
        raise UsageError(
            f"{prog} has no {'option' if first.startswith('-') else 'verb'} {first}.",
            f"{hint}`{prog} --help` lists all verbs.",
        )
    behind: list[str] = []
    if first in VERBS and VERBS[first].takes_command and "--" in words:
        # Not left to argparse, which removes each further "--" from the program's arguments.
        place = words.index("--")
        words, behind = words[:place], words[place + 1 :]
    try:
        args, unknown = parser(write, prog, first).parse_known_args(words)
    except _Done:
        return None
    if unknown and not args.parser.take_more(unknown, args):
        args.parser.unknown(unknown)
    args.behind = behind
    return args


async def execute(words: Sequence[str], caller: Caller) -> JobResult | None:
    """Run one command line of a notebook.

    Args:
        words: The words after ``%ciao``.
        caller: The caller of the verb.

    Returns:
        The job that the verb ran or followed, if any.

    Raises:
        CiaoError: The words are invalid, or the verb failed.
    """
    args = parse(words, caller.write, "%ciao")
    if args is None:
        return None
    result: JobResult | None = await args.run(args, caller)
    return result


def help_text() -> str:
    """Return the text of ``%ciao?`` and of Shift-Tab on ``%ciao``, with a line for each verb."""
    width = max(map(len, VERBS))
    return "\n".join(
        (
            "A command about jobs: %ciao VERB. A job is a cell with directives such as",
            "%framework=tensorflow at its top (in other kernels below %%ciao).",
            "",
            *(f"  %ciao {name:<{width}}  {verb.help}" for name, verb in VERBS.items()),
            "",
            "Examples:",
            "  %ciao jobs --running",
            "  %ciao logs mnist --replica worker-0 --tail 20",
            "",
            _IN_NOTEBOOK,
            "`%ciao magics` lists the directives. `_job?` explains the last job as an object.",
        )
    )
