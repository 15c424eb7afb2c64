"""Words that a verb does not take: the verb, option or form that is meant instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from ciao_kernel.commands.verb_table import VERBS
from ciao_kernel.magics import synonyms
from ciao_kernel.magics.spelling import key, like

_MEANT = {
    "stop": "delete", "kill": "delete", "cancel": "delete", "rm": "delete", "remove": "delete",
    "status": "describe", "show": "describe", "info": "describe",
    "ls": "jobs", "ps": "jobs", "list": "jobs", "get": "jobs",
    "detach": "run --detach", "submit": "run", "start": "run",
    "version": "--version",
}  # fmt: skip
"""Verbs of other programs, and those of ciao that do the same."""
_OF_PROGRAMS = frozenset(
    {
        "artifacts", "data", "dataset", "datasets", "metric", "metrics", "numworkers", "result",
        "results",
    }
)  # fmt: skip
"""Usual arguments of programs among the names that other tools have for directives."""
_TYPES = {
    "invalid float value: ": "expected a number, not ",
    "invalid int value: ": "expected a whole number, not ",
}
"""Words of argparse, and plainer ones."""
_NEEDLESS_VALUE = re.compile(r"argument (\S+): ignored explicit argument (.+)", re.DOTALL)


def for_verb(word: str) -> str:
    """Return the verb, or the words, that an unknown verb may mean; "" if nothing is like it."""
    near = difflib.get_close_matches(word, VERBS, n=1)
    return _MEANT.get(word) or (near[0] if near else "")


def for_word(word: str, prog: str, usage: str, options: Collection[str]) -> str:
    """Return a hint for an argument that a verb does not have; "" if there is none.

    Args:
        word: The argument.
        prog: The command with its verb, as the user types it.
        usage: The verb's own usage; "" if argparse makes it.
        options: The verb's options.
    """
    hint = ""
    name, equals, _ = word.partition("=")
    has_program = "[-- " in usage
    if near := _option(name, options, has_program=has_program):
        hint = f"Did you mean {near}? "
    elif equals and not name.startswith("-") and "--envvar" in options:
        hint = "Quote several pairs of an option as one value: --envvar 'A=1 B=2'. "
    elif prog.endswith(" log") and not name.startswith("-"):
        hint = f"`{prog}s {word}` shows the output of a job. "
    elif " -- " in usage:
        hint = "Write a command after --. "
    if has_program:
        hint += f"Arguments of the program follow --: `{prog} train.py -- --epochs 3`. "
    return hint


def explained(message: str, options: Collection[str]) -> tuple[str, str]:
    """Return a message of argparse in plainer words, and a hint.

    Args:
        message: The message.
        options: The verb's options.
    """
    for theirs, ours in _TYPES.items():
        message = message.replace(theirs, ours)
    if needless := _NEEDLESS_VALUE.fullmatch(message):
        names = needless[1].split("/")
        own = (f"--no-{names[-1].removeprefix('--')}", f"{names[-1]}=")
        forms = [*names, *(one for one in options if one.startswith(own))]
        text = f"{needless[1]} does not take the value {needless[2]}"
        return text, f"It is written as {' or '.join(forms)}. "
    if message.startswith("argument --args: expected one"):
        return message, "If the value begins with a dash: --args='--epochs 3'. "
    if message.startswith("argument --output/") and "--output-values" in options:
        return message, "The directive %output is the option --output-values. "
    return message, ""


def _option(word: str, options: Collection[str], *, has_program: bool) -> str:
    """Return the option that a word may mean; the dashes before both are not compared.

    Args:
        word: The word.
        options: The verb's options.
        has_program: The verb runs a program, whose arguments may come here by mistake.
    """
    if not word.startswith("-"):
        return ""
    names = {one.removeprefix("--"): one for one in options if one.startswith("--")}
    wanted = word.lstrip("-").replace("_", "-")
    if "envvar" in names and key(wanted) not in _OF_PROGRAMS:  # each directive is an option
        by_key = {key(one): option for one, option in names.items()}
        meant = (by_key.get(key(one), "") for one in synonyms.meant(wanted))
        if known := next(filter(None, meant), ""):
            return known
    for near in like(wanted, names):
        # An argument of the program, such as --lr, may resemble an option by chance.
        if not has_program or near.is_close:
            return names[near.name]
    return ""
