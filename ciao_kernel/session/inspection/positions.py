"""Where the processes of a job stand: in which line of the program, and in which call from it.

Only those that run the program are shown, and why a replica has none. Two processes are in one
group by the lines of the program in their stacks and by the first call of a library below them, not
by whole stacks: two ranks that wait in the same call differ in its inner frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ciao_kernel.model.stacks import Answer, Frame, ProcessStacks, ReplicaStacks, ThreadStack
from ciao_kernel.visible_text import visible

_WRAPPERS = frozenset(
    {"wrapper", "error_handler", "inner", "_fn", "_call_impl", "_wrapped_call_impl"}
)
"""Functions of decorators and the like, which say nothing about a call."""
_HELPERS = ("/multiprocessing/resource_tracker.py", "/multiprocessing/forkserver.py")
_IMPORT = "<frozen importlib"
_AGENT, _ZYGOTE = "/ciao_warm_agent.py", "ciao-zygote"
"""File of the agent of warm replicas, and the name of the process that it forks for each run."""
_DEBUGGER = ("/ciao_debug_wire.py", "/ciao_debug_prompt.py", "/ciao_debugger.py")
PROMPT = "its prompt of pdb"
_STATES = {"T": "is stopped by a signal", "t": "is stopped by a debugger"}


@dataclass(frozen=True, slots=True)
class Position:
    """Where one thread stands."""

    lines: tuple[tuple[str, int, str], ...]
    """File, line and function of each call in the program, innermost first."""
    call: str
    """The function of a library that the innermost line has called; "" if there is none."""


@dataclass(frozen=True, slots=True)
class Stand:
    """One process that is shown, with what distinguishes it from others."""

    name: str
    replica: str
    process: ProcessStacks | None
    threads: tuple[ThreadStack, ...]
    """The main thread, and others that run lines of the program."""
    fault: str = ""
    child: bool = False
    """It was started by another process that is shown."""

    @property
    def key(self) -> tuple[object, ...]:
        """What processes with an equal position have in common."""
        return (self.fault, *((one.main, position(one)) for one in self.threads))


def position(thread: ThreadStack) -> Position:
    """Return where a thread stands."""
    own = [number for number, frame in enumerate(thread.frames) if frame.own]
    lines = tuple(
        (thread.frames[at].file, thread.frames[at].line, thread.frames[at].function) for at in own
    )
    below = thread.frames[: own[0]] if own else thread.frames
    if any(frame.file.endswith(_DEBUGGER) for frame in below):
        return Position(lines, PROMPT)
    if is_importing(thread):
        return Position(lines, "")  # the line itself says what it imports
    below = below if own else below[:1]
    called = [frame.function for frame in reversed(below)]
    known = [name for name in called if name not in _WRAPPERS]
    return Position(lines, (known or called or [""])[0])


def is_importing(thread: ThreadStack) -> bool:
    """Return whether the innermost line of the program in a thread imports a module."""
    own = next((at for at, frame in enumerate(thread.frames) if frame.own), None)
    below = thread.frames[:1] if own is None else thread.frames[:own]
    return bool(below) and below[-1].file.startswith(_IMPORT)


def stands(replicas: Iterable[ReplicaStacks]) -> list[Stand]:
    """Return the processes of a job that run its program, or why a replica has none."""
    return [one for replica in replicas for one in _of_replica(replica)]


def merged(found: Sequence[Stand]) -> list[list[Stand]]:
    """Return groups of processes with an equal position, the largest first."""
    groups: dict[tuple[object, ...], list[Stand]] = {}
    for one in found:
        groups.setdefault(one.key, []).append(one)
    return sorted(groups.values(), key=lambda group: (not group[0].threads, -len(group)))


def answered(replicas: Iterable[ReplicaStacks]) -> bool:
    """Return whether any process gave its stack."""
    return any(process.threads for replica in replicas for process in replica.processes)


def same_place(before: Sequence[ReplicaStacks], after: Sequence[ReplicaStacks]) -> bool:
    """Return whether each process stands at the same lines of the program as before.

    One line may import for long; so of a thread that imports the whole stack must be the same.
    """
    return [_place_in_time(one) for one in stands(before)] == [
        _place_in_time(one) for one in stands(after)
    ]


def _place_in_time(one: Stand) -> tuple[object, ...]:
    imports = tuple(thread.frames for thread in one.threads if is_importing(thread))
    return (one.name, one.key, imports)


def _of_replica(replica: ReplicaStacks) -> Iterator[Stand]:
    name = str(replica.replica)
    if replica.fault:
        yield Stand(name, name, None, (), replica.fault)
        return
    processes = {one.pid: one for one in replica.processes}
    own = {pid for pid, one in processes.items() if _runs_program(one)}
    starters = {above for pid in own for above in _ancestors(pid, processes)}
    shown = [
        one
        for pid, one in processes.items()
        if pid in own
        or (one.answer is not Answer.NONE and pid not in starters and not _is_helper(one))
    ]
    several = len({one.rank for one in shown if one.pid in own}) > 1
    for one in shown:
        child = bool(own & set(_ancestors(one.pid, processes)))
        rank = f"[{one.rank}]" if several and one.rank else ""
        label = f"{name} (child {one.pid})" if child else name + rank
        yield Stand(label, name, one, _threads(one), _fault(one), child)
    if not shown and (waiting := [one for one in processes.values() if _is_warm(one)]):
        imports = any(_imports(one) for one in waiting)
        fault = "imports modules for its runs" if imports else "waits for its next run"
        yield Stand(name, name, None, (), fault)
    elif not shown:
        commands = sorted({one.command for one in replica.processes if one.command})
        yield Stand(name, name, None, (), _no_handler(commands))


def _runs_program(process: ProcessStacks) -> bool:
    return any(frame.own for frame in _frames(process))


def _is_helper(process: ProcessStacks) -> bool:
    return _is_warm(process) or any(one.file.endswith(_HELPERS) for one in _frames(process))


def _is_warm(process: ProcessStacks) -> bool:
    """Return whether a process is the agent of a warm replica, or waits to be forked."""
    return process.command == _ZYGOTE or any(one.file.endswith(_AGENT) for one in _frames(process))


def _imports(process: ProcessStacks) -> bool:
    """Return whether a process that waits to be forked still imports.

    It stands directly in ``serve`` while it waits. A stack of an import may be cut before it.
    """
    calls = {one.function for one in _frames(process)}
    return (
        process.command == _ZYGOTE and bool(calls) and ("_bring" in calls or "serve" not in calls)
    )


def _frames(process: ProcessStacks) -> Iterator[Frame]:
    return (frame for thread in process.threads for frame in thread.frames)


def _ancestors(pid: int, processes: dict[int, ProcessStacks]) -> Iterator[int]:
    seen = {pid}
    while pid in processes and (pid := processes[pid].parent) not in seen:
        seen.add(pid)
        yield pid


def _threads(process: ProcessStacks) -> tuple[ThreadStack, ...]:
    main = [one for one in process.threads if one.main]
    others = [
        one for one in process.threads if not one.main and any(frame.own for frame in one.frames)
    ]
    return (*main, *sorted(others, key=lambda one: one.name))


def _fault(process: ProcessStacks) -> str:
    if process.threads:
        return ""
    if process.state in _STATES:
        return _STATES[process.state]
    if process.answer is Answer.ASKED:
        return "is being asked by another command"
    return "does not answer" + (" and waits for a disk" if process.state == "D" else "")


def _no_handler(commands: Sequence[str]) -> str:
    if any(command.startswith("python") for command in commands):
        return "Python has just started, or runs without the handler"
    return f"runs no Python ({visible(', '.join(commands[:3])) or 'no process'})"
