"""Runs steps that need one another side by side, and says how far it is."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One step.

    Args:
        name: what the user reads.
        work: what to do.
        after: names of the steps that come before it.
    """

    name: str
    work: Callable[[], object]
    after: tuple[str, ...] = ()


def run(tasks: Sequence[Task], *, workers: int = 4, say: Callable[[str], None] = print) -> None:
    """Do all steps, each as soon as those before it are done; the first failure ends it.

    Steps that run when another fails are waited for, so that nothing runs on afterwards.
    """
    began = time.monotonic()
    waiting = {task.name: task for task in tasks}
    running: dict[Future[object], Task] = {}
    done: set[str] = set()
    failure: BaseException | None = None
    with ThreadPoolExecutor(max_workers=workers) as pool:
        while (waiting or running) and not failure:
            for task in [t for t in waiting.values() if done >= set(t.after)]:
                del waiting[task.name]
                running[pool.submit(_timed, task, say)] = task
            if not running:
                raise ValueError(f"these wait for what never comes: {', '.join(waiting)}")
            finished = wait(running, timeout=30, return_when=FIRST_COMPLETED).done
            if not finished:  # a long silence shall mean a fault
                names = ", ".join(task.name for task in running.values())
                say(f"    …     {names}  ({time.monotonic() - began:.0f} s in all)")
            for future in finished:
                task = running.pop(future)
                failure = failure or future.exception()
                done.add(task.name)
                if not future.exception():
                    say(
                        f"    done  {task.name}  ({future.result():.0f} s; "
                        f"{len(done)} of {len(tasks)}, {time.monotonic() - began:.0f} s in all)"
                    )
    if failure:
        raise failure


def _timed(task: Task, say: Callable[[str], None]) -> float:
    say(f"    start {task.name}")
    began = time.monotonic()
    task.work()
    return time.monotonic() - began
