"""Finds the replica that holds up the others: the one that does not wait for them.

In synchronous training all ranks make as many steps a second as the slowest one, so the times of
steps do not tell. The share of samples in calls that wait for other ranks does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ciao_kernel.model import Job
from ciao_kernel.model.stacks import Frame, ProcessSamples
from ciao_kernel.session.inspection import picture
from ciao_kernel.visible_text import listed

_COLLECTIVES = frozenset(
    {"all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object",
     "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
     "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object",
     "monitored_barrier", "recv", "recv_object_list", "reduce", "reduce_scatter",
     "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
     "_store_based_barrier"}
)  # fmt: skip
"""Functions of torch.distributed that wait for other ranks."""
_TORCH = "/torch/distributed/"
_DDP = "/torch/nn/parallel/distributed.py"
_BACKWARD = "/torch/autograd/"
"""A backward pass of DistributedDataParallel averages the gradients, below Python."""
_IN_C = re.compile(
    r"\.(wait|[Rr]ecv|[Ss]end|[Ss]endrecv|[Pp]robe|[Bb]arrier|[Bb]cast|[Gg]ather|[Aa]llgather"
    r"|[Ss]catter|[Rr]educe|[Aa]llreduce|[Aa]lltoall|Wait|Waitall)\("
)
"""Methods of mpi4py, and of a handle of torch, which have no frame of Python: the line tells."""
_ENOUGH = 20
"""Samples of a process before its share means something."""
_MUCH = 0.3
"""Share of the others' waits from which one that waits half as much is named."""
_APART = 0.2
_ALL = 0.6
_NOT_RANKS = frozenset({"ps", "evaluator", "launcher"})


@dataclass(frozen=True, slots=True)
class Sampled:
    """One process of the program, and its samples."""

    name: str
    samples: ProcessSamples

    @property
    def role(self) -> str:
        """Role of its replica."""
        return self.name.partition("-")[0]


def share(samples: ProcessSamples) -> float | None:
    """Return the share of a process's time in calls that wait for others; None: too few samples."""
    total = sum(count for count, _ in samples.stacks)
    if total < _ENOUGH:
        return None
    ddp = _uses_ddp(samples)
    return sum(count for count, stack in samples.stacks if is_waiting(stack, ddp)) / total


def is_waiting(stack: Sequence[Frame], ddp: bool = False) -> bool:
    """Return whether a stack, innermost call first, stands in a call that waits for other ranks.

    Args:
        stack: The stack.
        ddp: Its process uses DistributedDataParallel.
    """
    if stack[0].own:
        return bool(_IN_C.search(stack[0].text))
    for frame in stack:
        if frame.own:
            return False
        if _TORCH in frame.file and frame.function in _COLLECTIVES:
            return True
        if ddp and _BACKWARD in frame.file:
            return True
    return False


def sentences(job: Job, processes: Sequence[Sampled]) -> Iterator[str]:
    """Yield the verdict, or nothing if no process waits."""
    shares = [
        (found, one)
        for one in processes
        if one.role not in _NOT_RANKS and (found := share(one.samples)) is not None
    ]
    shares.sort(key=lambda one: one[0])
    if not shares or shares[-1][0] < _APART:
        return
    if len(shares) == 1:
        ((found, only),) = shares
        yield f"{only.name} waits {_percent(found)} of its time for other replicas."
        return
    slow = _slow(shares)
    if slow:
        names = listed([one.name for _, one in slow])
        most = _percent(slow[-1][0])
        others = _percent(median(found for found, _ in shares[len(slow) :]))
        waits, their = ("waits", "its") if len(slow) == 1 else ("wait", "their")
        they = "it is the slow one" if len(slow) == 1 else "they are the slow ones"
        yield (
            f"{names} {waits} {most} of {their} time for other replicas, the others {others}: "
            f"{they}{_busy(job, slow[0][1])}."
        )
    elif shares[0][0] >= _ALL:
        yield (
            f"All replicas wait for each other, {_percent(shares[0][0])} of their time or more: "
            "the exchange between them takes it, not the program."
        )
    else:
        low, high = shares[0][0], shares[-1][0]
        yield f"The replicas wait {_percent(low)} to {_percent(high)} of their time for each other."


def _slow(shares: Sequence[tuple[float, Sampled]]) -> Sequence[tuple[float, Sampled]]:
    """Return those that wait much less than the others, fewer than half of all."""
    for count in range(1, (len(shares) + 1) // 2 + (len(shares) == 2)):
        most, next_ = shares[count - 1][0], shares[count][0]
        if next_ >= _MUCH and most <= next_ / 2 and next_ - most >= _APART:
            return shares[:count]
    return ()


def _busy(job: Job, one: Sampled) -> str:
    """Return where a process spends the time in which it does not wait, to end a sentence."""
    ddp = _uses_ddp(one.samples)
    lines: Counter[Frame] = Counter()
    for count, stack in one.samples.stacks:
        inner = next((frame for frame in stack if frame.own), None)
        if inner is not None and not is_waiting(stack, ddp):
            lines[inner] += count
    if not lines:
        return ""
    frame, count = lines.most_common(1)[0]
    total = sum(count for count, _ in one.samples.stacks)
    return f", and spends {_percent(count / total)} in {picture.line_of(frame, job)}"


def _percent(share_: float) -> str:
    return f"{100 * share_:.0f} %"


def _uses_ddp(samples: ProcessSamples) -> bool:
    return any(frame.file.endswith(_DDP) for _, stack in samples.stacks for frame in stack)
