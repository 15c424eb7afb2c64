"""Profile of a job: the time that it spent, as a tree of calls that displays draw."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallTree:
    """One call, with the calls that were made in it. All texts may come from a pod."""

    name: str
    """A line of the program, such as ``line 25 in average``, or the name of a function."""
    detail: str = ""
    """The text of that line, or the file of that function."""
    own: bool = False
    """True for lines of the program."""
    count: int = 0
    """Samples in this call and in those below it."""
    calls: tuple[CallTree, ...] = ()
    """The most frequent call first; together they have at most :attr:`count` samples."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a job."""

    title: str
    tree: CallTree
    """All samples; its calls are the outermost lines of the program."""
    remarks: tuple[str, ...] = ()
    """Sentences: which replica holds up the others, and which have no samples."""
