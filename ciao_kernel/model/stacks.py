"""Stacks of the processes of a job at one moment."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ciao_kernel.model.replica import Replica


class Answer(enum.StrEnum):
    """Kind of answer that a process gave."""

    PYTHON = "python"
    """From Python's code, with all its threads."""
    C = "c"
    """From a library in C, with the main thread alone."""
    SILENT = "silent"
    """Not at all, although it has the handler."""
    ASKED = "asked"
    """Not at all, because somebody else was asking it."""
    NONE = "none"
    """Not at all: it has no handler, or Python has not started yet."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One call in a stack."""

    file: str
    line: int
    function: str
    own: bool = False
    """True if the file is one of the program's."""
    text: str = ""
    """The line's text, for files of the program."""


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """The stack of one thread, innermost call first."""

    name: str
    main: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ProcessStacks:
    """The stacks of one process of a replica."""

    pid: int
    parent: int
    answer: Answer
    threads: tuple[ThreadStack, ...] = ()
    command: str = ""
    """Name of the program that it runs, such as ``python3``."""
    rank: str = ""
    """Its number among the processes that torchrun started in the replica."""
    state: str = ""
    """State of its main thread, as in proc(5): ``T`` is stopped, ``D`` waits for a disk."""


@dataclass(frozen=True, slots=True)
class ReplicaStacks:
    """The stacks of one replica, or why there are none."""

    replica: Replica
    processes: tuple[ProcessStacks, ...] = ()
    fault: str = ""
    """Why nothing is known, as a phrase: ``it is Pending``."""


@dataclass(frozen=True, slots=True)
class ProcessSamples:
    """Stacks of the main thread of one process, over some seconds."""

    process: ProcessStacks
    """The process, with its most frequent stack."""
    stacks: tuple[tuple[int, tuple[Frame, ...]], ...] = ()
    """How often each stack was seen, innermost call first. Lines of libraries are 0."""
    rest: int = 0
    """Samples whose stacks were left out, because there were too many different ones."""


@dataclass(frozen=True, slots=True)
class ReplicaSamples:
    """The samples of one replica, or why there are none."""

    replica: Replica
    processes: tuple[ProcessSamples, ...] = ()
    fault: str = ""
    """As in :class:`ReplicaStacks`."""
