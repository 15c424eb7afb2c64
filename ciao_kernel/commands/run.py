"""``ciao run FILE.py`` and ``ciao run -m MODULE``: run a program as a job, like a cell."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import errno
import functools
import re
from dataclasses import replace
from pathlib import Path

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.job_json import reported
from ciao_kernel.commands.shared_arguments import add_output
from ciao_kernel.delivery.input import program as programs
from ciao_kernel.delivery.input.program import Program
from ciao_kernel.display.errors import for_terminal
from ciao_kernel.errors import JobFailed, UsageError
from ciao_kernel.magics import numeric_types, value_types
from ciao_kernel.magics.body import comments_below
from ciao_kernel.magics.directives.outputs import Outputs
from ciao_kernel.magics.directives.warm import WarmTime
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.parse import NO_VALUE
from ciao_kernel.magics.scanned_cell import ScannedCell, scan, scan_job
from ciao_kernel.magics.shell_words import quote, words
from ciao_kernel.magics.table import Directive, Scope, Table
from ciao_kernel.model import Event, Job, JobResult, Notice, State
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.user_path import expanded
from ciao_kernel.visible_text import visible_lines


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the file, and every directive as an option."""
    verb.usage = "%(prog)s [options] (FILE.py | -m MODULE) [-- ARGUMENT ...]"
    verb.epilog = (
        "The arguments after -- are passed to the program. A role may include its resources, "
        'as in --worker "2;%cpu=1;%memory=2Gi".'
    )
    file = verb.add_argument("file", nargs="?", metavar="FILE.py", help="the program")
    completion.by(completion.files(".py"), file)
    verb.add_argument(
        "-m", "--module", metavar="MODULE", help="the program as a module, as in -m package.train"
    )
    add_output(verb)
    group = verb.add_argument_group(
        "directives", "They override the directives in the file's header, as in --worker 2."
    )
    table = Registry().table  # Parsing and completion take place before there is a session.
    given = functools.partial(_options, table=table)
    for entry in table.entries:
        names = [entry.option]
        help_text = for_terminal(entry.help).replace("%", "%%")
        if entry.name == "detach":
            names.insert(0, "-d")
        dest = _dest(entry)
        if isinstance(entry.kind, value_types.Flag) and not isinstance(entry.kind, WarmTime):
            group.add_argument(
                *names, dest=dest, action="append_const", const="true", help=help_text
            )
        else:
            bare = value_types.may_be_bare(entry.kind)
            option = group.add_argument(
                *names,
                dest=dest,
                action="append",
                nargs="?" if bare else None,
                const=NO_VALUE if bare else None,
                metavar=_metavar(entry),
                help=help_text,
            )
            completion.by(completion.value(entry.name, given), option)
        if isinstance(entry.kind, value_types.Flag):
            group.add_argument(
                f"--no-{entry.option.removeprefix('--')}",
                dest=dest,
                action="append_const",
                const="false",
                help=f"override %%{entry.name} in the file's header",
            )
            for word in entry.kind.more:
                # A separate option: an optional value would take the file name as its value.
                name = f"{entry.option}={word}"
                group.add_argument(
                    name,
                    dest=dest,
                    action="append_const",
                    const=word,
                    help=f"the same with the word {word}",
                )


async def run(args: argparse.Namespace, caller: Caller) -> JobResult | None:
    """Run the program. Its modules are looked up as Python does, ``--files`` where the user is.

    Raises:
        UsageError: The program is not named, or is not one.
        EnvironmentFault: The working folder was removed, and something is relative to it.
        CiaoError: It cannot run, or has failed.
    """
    _give_file_back(args, caller.session.registry.table)
    path, shown, named = _located(args, caller)
    text = _read(path, shown)
    program = named or programs.of_file(path, text, caller.folder)
    options = _options(args, caller.session.registry.table)
    if "files" in options:  # words in the file's header are relative to the file
        program = replace(program, files_folder=caller.folder_of())
    cell = _scanned(text, options, shown, caller)
    display = caller.display
    parsed = caller.session.parse(cell, options=options)
    if parsed.spec.dryrun:
        if args.output == "json":
            raise UsageError("a dry run writes only text.", "Leave --output json out.")
        display = _NoticeWriter(caller)
    work = caller.session.run_parsed(
        parsed, display, program.folder, program=program, console=caller.prompts
    )
    result = await reported(work, args, caller)
    if caller.piped and args.output == "text" and result and result.state is State.RUNNING:
        caller.write(f"{result.name}\n")  # For $(ciao run -d …); the notice is on standard error.
    return result


def _give_file_back(args: argparse.Namespace, table: Table) -> None:
    """Take the program from an option that may be without a value: ``--checkpoint train.py``."""
    if args.file is not None or args.module is not None:
        return
    for entry in filter(lambda entry: value_types.may_be_bare(entry.kind), table.entries):
        values = getattr(args, _dest(entry)) or []
        for number, value in enumerate(values):
            if value != NO_VALUE and (value.endswith(".py") or _is_no_value(entry, value)):
                args.file, values[number] = value, NO_VALUE
                return


def _is_no_value(entry: Directive, value: str) -> bool:
    """Return whether a word behind a flag cannot be its value, so that it is the program."""
    if not isinstance(entry.kind, value_types.Flag):
        return False
    try:
        entry.kind.parse(value)
    except ValueError:
        return True
    return False


def _located(args: argparse.Namespace, caller: Caller) -> tuple[Path, str, Program | None]:
    """Return the program's path, its name for messages, and what ``-m`` means."""
    if args.module is not None:
        if args.file is not None:
            raise UsageError(
                f"-m names the program, so {args.file} has no meaning.",
                "Write arguments of the program after --.",
            )
        program = programs.of_module(args.module, caller.folder_of())
        return program.folder / program.entry, program.entry, program
    if args.file is None:
        raise UsageError(
            "no program is named.", "Write `ciao run FILE.py` or `ciao run -m MODULE`."
        )
    folder = caller.folder_of(args.file)
    return (folder / expanded(args.file)).absolute(), args.file, None


def _read(path: Path, shown: str) -> str:
    if path.suffix == ".ipynb":
        raise UsageError(
            f"{shown} is a notebook, but `ciao run` needs a Python file.",
            "Open it in Jupyter with the kernel Ciao.",
        )
    try:
        return path.read_bytes().decode()
    except OSError as error:
        hint = _nearest(path, shown) if error.errno == errno.ENOENT else ""
        raise UsageError(f"{shown} cannot be read: {error.strerror}.", hint) from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not UTF-8 text.", "Save it as UTF-8.") from None


def _nearest(path: Path, shown: str) -> str:
    """Return a hint for a missing file: the program beside it whose name is most like its own."""
    try:  # without the suffix, which all programs share
        names = [entry.stem for entry in path.parent.glob("*.py")]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.stem, names, n=1)
    return f"Did you mean {Path(shown).with_name(near[0])}.py?" if near else ""


def _scanned(text: str, options: dict[str, list[str]], shown: str, caller: Caller) -> ScannedCell:
    """Return the file with its directives.

    Raises:
        UsageError: Neither the file nor the options define a job.
    """
    table = caller.session.registry.table
    cell = scan(text, table, Style.FILE)
    if cell.tokens:
        return cell
    if scan_job(text, table):
        raise UsageError(
            f"{shown} has the header of a cell.",
            "In a file, write its lines as comments, as in #%worker=2, so that Python can read it.",
        )
    if not caller.session.settings.framework and "framework" not in options:
        if below := comments_below(text, cell.header, table):
            raise UsageError(
                f"{shown} has no header: {below[0]}",
                "Move these lines to the top of the file, above all code and its docstring.",
            )
        raise UsageError(
            f"{shown} has no header, and no option names a framework.",
            "Put lines such as #%framework=tensorflow and #%worker=2 at the top of the file, or "
            "write --framework tensorflow --worker 2.",
        )
    return cell


class _NoticeWriter:
    """Writes notices as the output of a verb (:class:`ciao_kernel.plugins.Display`)."""

    def __init__(self, caller: Caller) -> None:
        self._face = caller

    def begin(self, job: Job, follow: tuple[str, ...]) -> None:
        """Do nothing; never called, because a dry run makes no job."""

    def show(self, event: Event) -> None:
        if not isinstance(event, Notice):
            return
        text, preview = event.text, self._face.session.preview
        # The preview contains the user's program, which stays as it is.
        if self._face.terminal and not (preview and text == preview.text):
            text = for_terminal(text)
        self._face.write(f"{visible_lines(text)}\n")

    def conclude(self, error: JobFailed) -> bool:
        """Do nothing; never called."""
        return False

    async def end(self) -> None:
        """Do nothing; never called."""


_SPECIAL = re.compile(r"[;#]")
"""Characters that end a value in a header."""


def _dest(entry: Directive) -> str:
    return f"directive_{entry.name}"


def _metavar(entry: Directive) -> str:
    kind = entry.kind
    if isinstance(kind, value_types.Choice):
        return "|".join(kind.names())
    if isinstance(kind, value_types.Words):
        return "WORDS"
    names: dict[type, str] = {
        numeric_types.Count: "N",
        value_types.Pairs: "KEY=VALUE",
        numeric_types.Duration: "TIME",
        WarmTime: "TIME",
    }
    return names.get(type(kind), entry.name.upper())


def _options(args: argparse.Namespace, table: Table) -> dict[str, list[str]]:
    """Return the directives that were given as options, as written in a header.

    The names are those of the options, because errors show them.

    Raises:
        UsageError: The program's arguments are given twice.
    """
    options: dict[str, list[str]] = {}
    for entry in table.entries:
        value = getattr(args, _dest(entry), None)
        name = entry.option.removeprefix("--")
        if value and isinstance(entry.kind, value_types.Flag):  # the last one counts
            options[name] = [_quoted(value[-1], entry)]
        elif value and entry.scope is not Scope.ROLE:  # an option of a role may have directives
            options[name] = [_quoted(text, entry) for text in value]
        elif value:
            options[name] = value
    if behind := getattr(args, "behind", ()):
        if "args" in options:
            raise UsageError(
                "the program has arguments both in --args and after --.",
                "Write all of them after --.",
            )
        options["args"] = [" ".join(map(quote, behind))]
    return options


def _quoted(text: str, entry: Directive) -> str:
    """Quote a value, so that nothing in it is read as a comment or as another directive."""
    if text == NO_VALUE:
        return text
    if isinstance(entry.kind, Outputs):  # a comma separates words, but not in quotes
        with contextlib.suppress(ValueError):
            return entry.kind.render(entry.kind.parse(text))
    if entry.repeatable or isinstance(entry.kind, value_types.Words):
        try:
            return " ".join(map(quote, words(text)))
        except ValueError:
            return text  # The parser reports the error.
    try:
        entry.kind.parse(text)
        plain = words(text) == (text,) and not _SPECIAL.search(text)
    except ValueError:
        plain = not text
    return text if plain else quote(text)  # The shell has already removed its own quotes.
