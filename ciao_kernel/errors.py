"""Every error that ciao raises on purpose, in one tree.

::

    CiaoError                     what went wrong, and how to fix it
    ├── UsageError                the user's text is wrong; nothing was started
    │   ├── DirectiveError        a line of the header (line, column, nearest name)
    │   ├── SpecError             directives that conflict (becomes a DirectiveError)
    │   │   └── NoRoom            … or a quota or this machine has no room now
    │   ├── SourceError           the body of the cell or a file that it needs
    │   └── SettingError          a wrong setting, with the place where it is set
    ├── PluginError               an unknown or broken framework, builder or backend
    ├── EnvironmentFault          this machine cannot run the job (interpreter, disk, GPUs, ports)
    ├── BackendError              the backend could not carry out a request
    │   ├── NoSuchJob             no job has that name
    │   ├── Incomplete            some jobs are missing in a list, and what is known of the others
    │   ├── ClusterFault          the cluster does not answer, or there are no credentials for it
    │   ├── Refused               the API server refused a request (code, reason)
    │   └── RegistryFault         an image registry refused a request or does not answer
    │       └── RegistryUnreachable   … this machine has no connection to it
    ├── CommandFailed             a command that ran in a replica failed (`ciao exec`)
    └── JobError                  the job was accepted, then …
        ├── JobFailed             … a replica failed, or the deadline passed
        ├── JobStopped            … someone else stopped or deleted it
        └── JobLost               … the process that ran it is gone

Only the user interfaces (kernel, extension, cli) turn an error into text, with :func:`describe`.
Messages never hold a secret: they are built from names and places, not from values of
the environment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ciao_kernel.visible_text import visible, visible_lines

_SHOWN = 500
"""Characters of a line that are shown: a cell may be one line of a megabyte."""


class CiaoError(Exception):
    """Base of all errors of ciao.

    Args:
        message: One sentence: what is wrong, with the value that was found.
        hint: One sentence: what to do. Empty if there is no useful advice.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CiaoError):
    """The user's text is wrong; nothing was started."""


class DirectiveError(UsageError):
    """A directive in the header of a cell is wrong.

    Args:
        message: What is wrong.
        hint: How to fix it.
        line: Line in the cell, counted from 1.
        column: First wrong character in the line, counted from 0.
        width: How many characters are wrong (at least 1).
        text: The line as the user wrote it, without its line break.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        line: int,
        column: int = 0,
        width: int = 1,
        text: str = "",
    ) -> None:
        super().__init__(message, hint)
        self.line = line
        self.column = column
        self.width = max(1, width)
        self.text = text


class SpecError(UsageError):
    """Directives conflict, although each alone is correct.

    Frameworks and backends raise it without a line; the session finds the line.

    Args:
        message: What is wrong.
        hint: How to fix it.
        directive: Name of the directive to blame.
        word: The wrong word in its value, for directives that may have several lines.
    """

    def __init__(self, message: str, hint: str = "", *, directive: str, word: str = "") -> None:
        super().__init__(message, hint)
        self.directive = directive
        self.word = word


class NoRoom(SpecError):
    """A quota or this machine has no room; it may have some when other jobs have ended.

    Args:
        message: What is missing.
        hint: How to fix it.
        directive: Name of the directive to blame.
        word: As in :class:`SpecError`.
        holders: Names of the jobs whose end would make room, each alone, if they are known.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        directive: str,
        word: str = "",
        holders: Collection[str] = (),
    ) -> None:
        super().__init__(message, hint, directive=directive, word=word)
        self.holders = frozenset(holders)


class SourceError(UsageError):
    """The body of the cell, or a file that it needs, cannot be used.

    Args:
        message: What is wrong.
        hint: How to fix it.
        line: Line in the cell, counted from 1; 0 if no single line is wrong.
        column: First wrong character, counted from 0.
        text: The line as the user wrote it.
    """

    def __init__(
        self, message: str, hint: str = "", *, line: int = 0, column: int = 0, text: str = ""
    ) -> None:
        super().__init__(message, hint)
        self.line = line
        self.column = column
        self.width = 1
        self.text = text


class SettingError(UsageError):
    """A setting has a wrong name or value; the message names its place."""


class PluginError(CiaoError):
    """A framework, builder or backend is unknown, or a third-party one fails to load."""


class EnvironmentFault(CiaoError):
    """This machine cannot run the job: interpreter, packages, disk, GPUs or ports."""


class BackendError(CiaoError):
    """The backend could not carry out a request."""


class NoSuchJob(BackendError):
    """No job has that name.

    Args:
        message: Where there is none.
        hint: Where else to look.
        existed: A job had exactly this name, so no similar name is meant.
    """

    def __init__(self, message: str, hint: str = "", *, existed: bool = False) -> None:
        super().__init__(message, hint)
        self.existed = existed


class Incomplete(BackendError):
    """A list of jobs lacks some: their records cannot be trusted.

    Args:
        message: The records, and why they are not used.
        hint: What to do with them.
        found: The other jobs, each with its status.
    """

    def __init__(self, message: str, hint: str, found: Sequence[tuple[Any, Any]]) -> None:
        super().__init__(message, hint)
        self.found = tuple(found)


class ClusterFault(BackendError):
    """No API server answered, or its address or the credentials are missing.

    Args:
        message: What is wrong.
        hint: How to fix it, also for a command that only looks.
        unreachable: No cluster can be asked at all, but a new job may run on this machine.
    """

    def __init__(self, message: str, hint: str = "", *, unreachable: bool = False) -> None:
        super().__init__(message, hint)
        self.unreachable = unreachable


class Refused(BackendError):
    """The API server refused a request.

    Args:
        message: The server's message.
        hint: What may help.
        code: The HTTP status.
        reason: The Status object's ``reason``, such as ``Forbidden``; "" if it has none.
        signed_out: The server accepts no credentials that this process has: their user may sign in.
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        code: int,
        reason: str = "",
        signed_out: bool = False,
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.reason = reason
        self.signed_out = signed_out


class CommandFailed(CiaoError):
    """A command that ran in a replica (``ciao exec``) ended with a code other than 0.

    Args:
        message: The command, its replica, and its code.
        code: As in a shell: 128 + n for the signal n.
    """

    def __init__(self, message: str, hint: str = "", *, code: int) -> None:
        super().__init__(message, hint)
        self.code = code


class RegistryFault(BackendError):
    """An image registry refused a request or did not answer.

    Args:
        message: The registry's message, or the reason why it did not answer.
        hint: What may help.
        code: The HTTP status; 0 if there was no answer.
        passing: The fault is probably temporary.
    """

    def __init__(
        self, message: str, hint: str = "", *, code: int = 0, passing: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.passing = passing


class RegistryUnreachable(RegistryFault):
    """This machine has no connection to a registry; another network may have one."""


class JobError(CiaoError):
    """The job was accepted, but did not succeed."""


class JobFailed(JobError):
    """A replica failed, or the job's deadline passed.

    Args:
        message: The replica, and how it ended.
        hint: What may fix it.
        job: Name of the job.
        traceback: Lines of the replica's Python traceback, without line breaks.
        repeats: Lines of logs that ``traceback`` repeats, or cuts if a log file has them: for each
            replica, lines as it wrote them by their place counted from the end of its log (1 is
            the last line).
    """

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        job: str = "",
        traceback: tuple[str, ...] = (),
        repeats: Mapping[Any, Mapping[int, bytes]] | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.job = job
        self.traceback = traceback
        self.repeats = repeats or {}
        self.others = ""
        """Line of ``traceback`` that names other replicas with the same error."""
        self.exceptions: Mapping[Any, str] = {}
        """The line that names the exception, of each replica that ended with a traceback."""
        self.on_screen = False
        """The user sees ``traceback`` already, directly above, except for that line."""


class JobStopped(JobError):
    """The job was stopped or deleted by someone else while it was followed."""


class JobLost(JobError):
    """The process that ran the job is gone and left no result."""


def describe(error: CiaoError, words: Callable[[str], str] = str) -> list[str]:
    """Return the plain lines that show an error: the place, the message, the hint.

    The user interfaces add colour. Carets mark the wrong part of a line of the cell. Values are
    visible text; the traceback has the characters that the job wrote.

    Args:
        error: The error.
        words: Words the message and the hint for the place where they are shown. The line of the
            cell and the traceback stay as the user and the job wrote them.
    """
    from rich.cells import cell_len  # not at the start of each kernel

    lines: list[str] = []
    if isinstance(error, JobFailed) and error.on_screen:
        lines += [error.others] if error.others else []
    elif isinstance(error, JobFailed) and error.traceback:
        lines += [*error.traceback, ""]
    if isinstance(error, DirectiveError | SourceError) and error.line:
        place = f"line {error.line}: "
        text, column, width = _cut(error.text.expandtabs(1), error.column, error.width)
        marked = text[column : column + width]
        beyond = width - len(marked)
        before, under, after = map(visible, (text[:column], marked, text[column + width :]))
        lines.append(place + before + under + after)
        # One caret for each wrong character, and two for a wide character.
        carets = max(1, cell_len(under) + beyond)
        lines.append(" " * (len(place) + cell_len(before)) + "^" * carets)
    lines.append(f"{type(error).__name__}: {visible_lines(words(error.message))}")
    if error.hint:
        lines.append(visible_lines(words(error.hint)))
    return lines


def _cut(text: str, column: int, width: int) -> tuple[str, int, int]:
    """Return the part of a long line around a column, with the new column and width."""
    if len(text) <= _SHOWN:
        return text, column, width
    start = max(0, min(column - _SHOWN // 2, len(text) - _SHOWN))
    before = "…" if start else ""
    after = "…" if start + _SHOWN < len(text) else ""
    width = min(width, start + _SHOWN - column)
    return before + text[start : start + _SHOWN] + after, column - start + len(before), width
