"""Many jobs in one kernel, and many presses of its stop button, with the figures of both.

The same programs run on the loopback (``tests/integration/kube/test_endurance.py``) and on a real
cluster (``tests/e2e/jobs/test_endurance.py``).
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass
from pathlib import Path

from tests.helpers.kernels import Kernel

HEAD = "%framework=tensorflow\n%cleanPolicy=all\n%worker=2\n"
SHORT = HEAD + "%successPolicy=allWorkers\nprint('ready', flush=True)\n"
"""Both workers decide: else a real operator ends one with the other, however late it began."""
LONG = HEAD + "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
_COUNT = """
import asyncio, gc, threading
gc.collect()
pool = sum(one.name.startswith("asyncio_") for one in threading.enumerate())
print("tasks", len(asyncio.all_tasks()), "pool", pool)
"""
_WARM = 5
"""Jobs before the first measurement: caches fill, modules are imported."""
_MEMORY = 100_000
"""Bytes that a job may leave in the kernel's memory: IPython keeps each cell and its output."""
_SLACK = 30_000_000
"""Bytes by which a process' memory varies anyway: of an allocator's arenas."""


@dataclass(frozen=True)
class Use:
    """What a kernel holds at a moment."""

    memory: int
    descriptors: int
    threads: int
    tasks: int

    def __str__(self) -> str:
        memory, *others = astuple(self)
        names = ("descriptors", "threads", "tasks")
        counts = (f"{count} {name}" for count, name in zip(others, names, strict=True))
        return f"{memory / 1e6:.1f} MB, " + ", ".join(counts)


def use(kernel: Kernel) -> Use:
    """Return what a kernel holds now."""
    ((tasks, pool),) = re.findall(r"tasks (\d+) pool (\d+)", kernel.run(_COUNT).text)
    process = kernel.process
    # asyncio's own pool has a bound, and as many threads as were at work at one moment so far.
    threads = process.num_threads() - int(pool)
    return Use(process.memory_info().rss, process.num_fds(), threads, int(tasks))


def soak(kernel: Kernel, count: int, left: Callable[[], Collection[object]]) -> str:
    """Run so many jobs one after another; return the figures.

    Args:
        kernel: A fresh one.
        count: Jobs, more than five.
        left: Returns what is left of jobs outside of the kernel.
    """
    first: Use | None = None
    began = time.monotonic()
    for number in range(count):
        done = kernel.run(SHORT)
        assert done.status == "ok", (done.text, done.of("error"))
        assert done.text.count("ready\n") == 2, done.text
        kernel.requests.clear()
        if number + 1 == _WARM:
            first = use(kernel)
    seconds, last = time.monotonic() - began, use(kernel)
    assert first
    figures = f"{count} jobs in {seconds:.0f} s; after {_WARM}: {first}; at the end: {last}"
    assert last.memory - first.memory < _SLACK + (count - _WARM) * _MEMORY, figures
    # A connection to the server may be open at one moment and not at the other.
    assert last.descriptors <= first.descriptors + 4, figures
    assert last.threads <= first.threads + 2, figures
    assert last.tasks <= first.tasks + 2, figures
    assert not left(), f"{figures}; {left()}"
    per_job = (last.memory - first.memory) / max(1, count - _WARM)
    return f"{figures}; {per_job / 1000:.1f} kB of memory each; nothing left"


def interrupts(kernel: Kernel, count: int, seed: int, wait_until_gone: Callable[[], object]) -> str:
    """Press the stop button so many times, each at another moment; return the figures.

    Each cell ends, and the kernel answers right after it. At the end nothing is left of any job.

    Args:
        kernel: The kernel.
        count: Presses.
        seed: Of the moments.
        wait_until_gone: Waits until nothing is left of jobs outside of the kernel.
    """
    chance = random.Random(seed)
    moments: dict[str, int] = dict.fromkeys(("submitting", "following", "ending"), 0)
    worst, late = 0.0, 0
    for number in range(count):
        moment = chance.choice(list(moments))
        moments[moment] += 1
        request = kernel.execute(SHORT if moment == "ending" else LONG)
        if moment == "submitting":
            kernel.take(chance.random() * 0.6)
        else:
            kernel.wait_text(request, "ready")
            kernel.take(chance.random() * 0.5)
        kernel.interrupt()
        began = time.monotonic()
        where = f"press {number} of seed {seed}, while {moment}: {request.text}"
        kernel.finish(request)
        worst = max(worst, time.monotonic() - began)
        if request.status == "ok":  # it had ended just before
            late += 1
            kernel.let_interrupts_arrive()
        assert request.status == "ok" or request.error == "KeyboardInterrupt", where
        assert "Traceback" not in request.text, where
        assert "42" in kernel.run("print(6 * 7)").text, where
        kernel.requests.clear()
    wait_until_gone()
    told = ", ".join(f"{n} while {moment}" for moment, n in moments.items())
    return (
        f"{count} interrupts of seed {seed} ({told}), {late} came too late; "
        f"worst {worst:.1f} s to the end of the cell; nothing left"
    )


def folders(storage: Path) -> list[Path]:
    """Return the folders that jobs left in a user's storage."""
    return [path for path in (storage / "cluster").glob("*/*") if path.is_dir()]
