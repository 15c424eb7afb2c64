"""Merges the samples of all processes of a job into one tree of calls, with a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ciao_kernel.model import Job
from ciao_kernel.model.profile import CallTree, Profile
from ciao_kernel.model.stacks import Frame, ProcessSamples, ReplicaSamples, ReplicaStacks
from ciao_kernel.session.inspection import picture, positions, waits
from ciao_kernel.session.inspection.waits import Sampled
from ciao_kernel.visible_text import listed, visible

_IMPORTS = "<frozen importlib"
"""Frames that each import has."""


def of(job: Job, replicas: Sequence[ReplicaSamples], seconds: float) -> Profile:
    """Return the profile of a job.

    Args:
        job: The job.
        replicas: The samples of its replicas.
        seconds: How long they were sampled.
    """
    stands = positions.stands(
        ReplicaStacks(one.replica, tuple(each.process for each in one.processes), one.fault)
        for one in replicas
    )
    known = {
        (str(one.replica), each.process.pid): each for one in replicas for each in one.processes
    }
    sampled = [
        Sampled(one.name, known[one.replica, one.process.pid])
        for one in stands
        if one.process is not None and one.threads and not one.child
    ]
    tree = _tree(job, (each.samples for each in sampled))
    who = sampled[0].name if len(sampled) == 1 else f"{len(sampled)} processes"
    title = f"profile of {job.name}: {seconds:g} s, {tree.count:,} samples of {who}"
    return Profile(title, tree, tuple(_remarks(job, stands, sampled)))


def _remarks(
    job: Job, stands: Sequence[positions.Stand], sampled: Sequence[Sampled]
) -> Iterator[str]:
    yield from waits.sentences(job, sampled)
    faults: dict[str, dict[str, None]] = {}
    for one in stands:
        if one.fault and not one.child:
            faults.setdefault(one.fault, {})[one.name] = None
    for fault, names in faults.items():
        yield f"{listed([*names])}: {visible(fault)}."
    yield from picture.handler_hint(stands)
    if children := sum(one.child for one in stands):
        what = "1 process" if children == 1 else f"{children} processes"
        yield f"{what} that the program has started, such as a data loader's, are not counted."
    if rest := sum(one.samples.rest for one in sampled):
        yield f"{rest:,} samples of rare stacks are not counted."


# ------------------------------------------------------------------------------------ the tree


@dataclass(slots=True)
class _Call:
    """A call while samples are added."""

    frame: Frame
    count: int = 0
    calls: dict[tuple[str, int, str], _Call] = field(default_factory=dict)


def _tree(job: Job, processes: Iterable[ProcessSamples]) -> CallTree:
    top = _Call(Frame("", 0, "all"))
    for one in processes:
        for count, stack in one.stacks:
            top.count += count
            call = top
            for frame in _from_program(stack):
                key = (frame.file, frame.line, frame.function)
                call = call.calls.setdefault(key, _Call(frame))
                call.count += count
    return _named(job, top)


def _from_program(stack: Sequence[Frame]) -> Sequence[Frame]:
    """Return a stack, outermost call first, without the launchers outside the program."""
    own = [at for at, frame in enumerate(stack) if frame.own]
    whole = stack[own[-1] :: -1] if own else stack[::-1]
    return [frame for frame in whole if not frame.file.startswith(_IMPORTS)] or whole


def _named(job: Job, call: _Call) -> CallTree:
    name, detail = _label(job, call.frame)
    below = sorted(call.calls.values(), key=lambda one: -one.count)
    calls = tuple(_named(job, one) for one in below)
    return CallTree(name, detail, call.frame.own, call.count, calls)


def _label(job: Job, frame: Frame) -> tuple[str, str]:
    if frame.own:
        return picture.line_of(frame, job), visible(frame.text)
    return visible(frame.function), picture.file_of(frame)
