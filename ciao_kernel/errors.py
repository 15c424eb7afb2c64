"""Every error that ciao raises on purpose, in one tree.

::

    CiaoError                     what went wrong, and how to fix it
    ├── UsageError                the user's text is wrong; nothing was started
    │   ├── DirectiveError        a line of the header (line, column, nearest name)
    │   ├── SpecError             directives that do not go together (becomes a DirectiveError)
    │   ├── SourceError           the body of the cell or a file that it needs
    │   └── SettingError          a setting's name or value, and where it stands
    ├── PluginError               an unknown or broken framework, builder or backend
    ├── EnvironmentFault          this machine cannot run the job (interpreter, disk, GPUs, ports)
    ├── BackendError              the backend could not do what was asked
    │   ├── NoSuchJob             no job has that name
    │   ├── ClusterFault          the cluster does not answer, or there are no credentials for it
    │   ├── Refused               the API server said no (code, reason)
    │   └── RegistryFault         an image registry said no, or does not answer
    ├── CommandFailed             a command that ran in a replica ended badly (`ciao exec`)
    └── JobError                  the job was accepted, then …
        ├── JobFailed             … a replica failed, or the deadline passed
        ├── JobStopped            … someone else stopped or deleted it
        └── JobLost               … what ran it is gone

Only the faces (kernel, extension, cli) turn an error into text, by :func:`describe`.
Messages never hold a secret: they are built from names and places, not from values of
the environment.
"""

from __future__ import annotations

import unicodedata

_SHOWN = 500
"""How much of a line is shown: a cell may be one line of a megabyte."""


class CiaoError(Exception):
    """Base of all errors of ciao.

    Args:
        message: One sentence: what is wrong, with the value that was found.
        hint: One sentence: what to do. Empty where there is nothing useful to say.
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
        column: First wrong character in that line, counted from 0.
        width: How many characters are wrong (at least 1).
        text: The line as the user wrote it, without its end.
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
    """Directives that are right one by one do not go together.

    Frameworks and backends raise it, who do not know lines; the session finds the line.

    Args:
        message: What is wrong.
        hint: How to fix it.
        directive: Name of the directive to blame.
        word: What is wrong in its value, where several lines of it add up.
    """

    def __init__(self, message: str, hint: str = "", *, directive: str, word: str = "") -> None:
        super().__init__(message, hint)
        self.directive = directive
        self.word = word


class SourceError(UsageError):
    """The body of the cell, or a file that it needs, cannot be used.

    Args:
        message: What is wrong.
        hint: How to fix it.
        line: Line in the cell, counted from 1; 0 where no single line is to blame.
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
    """A setting has a wrong name or value; the message names the place it stands in."""


class PluginError(CiaoError):
    """A framework, builder or backend is unknown, or a third party's fails to load."""


class EnvironmentFault(CiaoError):
    """This machine cannot run the job: interpreter, packages, disk, GPUs or ports."""


class BackendError(CiaoError):
    """The backend could not do what was asked of it."""


class NoSuchJob(BackendError):
    """No job has that name."""


class ClusterFault(BackendError):
    """No API server answered, or nothing says where it is and who asks."""


class Refused(BackendError):
    """The API server said no.

    Args:
        message: Its words.
        hint: What may help.
        code: The HTTP status.
        reason: The Status object's ``reason``, such as ``Forbidden``; "" where it has none.
    """

    def __init__(self, message: str, hint: str = "", *, code: int, reason: str = "") -> None:
        super().__init__(message, hint)
        self.code = code
        self.reason = reason


class CommandFailed(CiaoError):
    """A command that ran in a replica (``ciao exec``) ended with another code than 0.

    Args:
        message: Which command, where, and its code.
        code: As a shell has it: 128 + n for the signal n.
    """

    def __init__(self, message: str, hint: str = "", *, code: int) -> None:
        super().__init__(message, hint)
        self.code = code


class RegistryFault(BackendError):
    """A registry of images said no, or nobody answered.

    Args:
        message: What it said.
        hint: What may help.
        code: The HTTP status; 0 where nobody answered.
        passing: It may well be over in a moment.
    """

    def __init__(
        self, message: str, hint: str = "", *, code: int = 0, passing: bool = False
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.passing = passing


class JobError(CiaoError):
    """The job was accepted and then did not end well."""


class JobFailed(JobError):
    """A replica failed, or the job's deadline passed.

    Args:
        message: Which replica, and how it ended.
        hint: What may fix it.
        job: Name of the job.
        traceback: Lines of the replica's Python traceback, without line ends.
    """

    def __init__(
        self, message: str, hint: str = "", *, job: str = "", traceback: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, hint)
        self.job = job
        self.traceback = traceback


class JobStopped(JobError):
    """The job was stopped or deleted by someone else while it was followed."""


class JobLost(JobError):
    """The process that ran the job is gone without a word."""


def describe(error: CiaoError) -> list[str]:
    """Return the plain lines that show an error: the place, the sentence, the fix.

    The faces add colour. A line of the cell is shown with a caret under the wrong part.
    """
    lines: list[str] = []
    if isinstance(error, JobFailed) and error.traceback:
        lines += [*error.traceback, ""]
    if isinstance(error, DirectiveError | SourceError) and error.line:
        place = f"line {error.line}: "
        text, column, width = _cut(error.text.expandtabs(1), error.column, error.width)
        lines.append(place + text)
        # Each character under the caret gets one, and a wide one two.
        under = text[column : column + width]
        carets = max(1, _columns(under) + width - len(under))
        lines.append(" " * (len(place) + _columns(text[:column])) + "^" * carets)
    lines.append(f"{type(error).__name__}: {error.message}")
    if error.hint:
        lines.append(error.hint)
    return lines


def _cut(text: str, column: int, width: int) -> tuple[str, int, int]:
    """Leave what stands around the column of a long line; return it and the place in it."""
    if len(text) <= _SHOWN:
        return text, column, width
    start = max(0, min(column - _SHOWN // 2, len(text) - _SHOWN))
    before = "…" if start else ""
    after = "…" if start + _SHOWN < len(text) else ""
    width = min(width, start + _SHOWN - column)
    return before + text[start : start + _SHOWN] + after, column - start + len(before), width


def _columns(text: str) -> int:
    """How wide a text is where characters have a fixed width: a Chinese one is as two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
