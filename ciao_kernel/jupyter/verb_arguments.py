"""Completion on Tab behind ``%ciao VERB``: names of jobs and files, options and their values.

It is that of ``ciao VERB`` in a shell. A kernel lives on, so what clusters answer too late for one
Tab is there for the next, and it must not wait: Tab comes on the thread that also runs cells.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ciao_kernel.commands import parser
from ciao_kernel.commands.completion import JobSearch
from ciao_kernel.commands.verb_table import VERBS
from ciao_kernel.magics.help.completion import Completion

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.model import Job

_LINE = re.compile(r"[ \t]*+%ciao[ \t]++(\w++)[ \t]++")
_HERE = 0.5
"""Maximum seconds for the jobs of this machine; they take some milliseconds."""
_CLUSTERS = 0.2
"""Maximum seconds to wait for those of clusters."""
_FRESH = 3.0
"""Seconds in which an answer is not asked for again: Tab is pressed several times for one name."""
_HANGS = 30.0
"""Seconds after which a search is given up: jobs that began since then would never be offered."""


class VerbArguments:
    """Completes the arguments of ``%ciao`` commands.

    Args:
        settings: Returns the settings of the kernel.
        look: Starts a search for jobs.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        look: Callable[[argparse.Namespace, Settings], JobSearch] = JobSearch,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._look, self._clock = settings, look, clock
        self._search: JobSearch | None = None
        self._place = ("", "")
        self._began = 0.0
        self._known: list[Job] = []
        """Jobs that the last complete search in that place has found."""

    def complete(self, code: str, start: int, cursor: int) -> Completion | None:
        """Return completions, or None if the cursor is not on an argument of a ``%ciao`` command.

        Args:
            code: The cell.
            start: Offset of the first character of the cursor's line.
            cursor: Offset of the cursor.
        """
        line = _LINE.match(code, start, cursor)
        if line is None or line[1] not in VERBS:
            return None
        *before, typed = re.split(r"[ \t]+", code[line.end() : cursor])
        if VERBS[line[1]].takes_command and "--" in before:
            return None  # the arguments of a program, which only the user knows
        if re.search(r"['\"\\]", code[line.end() : cursor]):
            return None  # a path with blanks, which IPython completes
        end = re.compile(r"\S*").match(code, cursor)
        assert end is not None
        matches = self._matches(line[1], before, typed)
        return Completion(tuple(matches), cursor - len(typed), end.end())

    def _matches(self, verb: str, before: list[str], typed: str) -> list[str]:
        arguments: Any = _arguments(verb)
        options = arguments._option_string_actions
        behind = options.get(before[-1]) if before else None
        if behind is None or behind.nargs == 0:
            if typed.startswith("-"):
                return [one for one in options if one.startswith(typed)]
            positional = [one for one in arguments._actions if not one.option_strings]
            behind = next((one for one in positional if hasattr(one, "completer")), None)
        if behind is None:
            return []
        if behind.choices:
            return [one for one in behind.choices if one.startswith(typed)]
        completer = getattr(behind, "completer", None)
        if completer is None:
            return []
        args = _parsed(options, before)
        args.known_jobs = lambda: self._jobs(args)
        found = dict.fromkeys(completer(prefix=typed, parsed_args=args))
        return [one.replace(" ", r"\ ") for one in found]

    def _jobs(self, args: argparse.Namespace) -> list[Job]:
        """Return the jobs, the newest first: those of this machine, and of clusters if known."""
        place = (args.context, args.namespace)
        age = self._clock() - self._began
        stale = self._search is not None and age > (_FRESH if self._search.over else _HANGS)
        if self._search is None or place != self._place or stale:
            if place != self._place:
                self._known = []
            elif self._search is not None:
                self._known = self._search.found(0, 0)
            self._search, self._place = self._look(args, self._settings()), place
            self._began = self._clock()
        found = self._search.found(_HERE, _CLUSTERS)
        if self._search.over:
            self._known = found
        # A name that was known a moment ago is offered while a cluster is asked again.
        every = {(job.backend, job.place, job.name): job for job in (*self._known, *found)}
        return sorted(every.values(), key=lambda job: -job.created)


def _arguments(verb: str) -> argparse.ArgumentParser:
    top = parser(prog="%ciao", verb=verb)
    (verbs,) = (one for one in top._actions if isinstance(one, argparse._SubParsersAction))
    chosen: argparse.ArgumentParser = verbs.choices[verb]
    return chosen


def _parsed(options: dict[str, argparse.Action], words: list[str]) -> argparse.Namespace:
    """Return what completion needs of the words before the cursor, which may be incomplete."""
    found = argparse.Namespace(context="", namespace="", name="")
    waiting: argparse.Action | None = None
    for word in words:
        option, equals, value = word.partition("=")
        if waiting is not None:
            _note(found, waiting, word)
            waiting = None
        elif (action := options.get(option)) is not None:
            if equals:
                _note(found, action, value)
            elif action.nargs != 0:
                waiting = action
        elif not found.name:
            found.name = word
    return found


def _note(found: argparse.Namespace, action: argparse.Action, value: str) -> None:
    if isinstance(action, argparse._AppendAction):  # as directives are
        setattr(found, action.dest, [*getattr(found, action.dest, ()), value])
    else:
        setattr(found, action.dest, value)
