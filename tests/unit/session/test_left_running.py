"""Which jobs the first cell of a kernel speaks of, and how."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ciao_kernel.errors import ClusterFault
from ciao_kernel.model import Job, Notice, State, Status
from ciao_kernel.session.left_running import LeftRunning

OWN = "ada@laptop kernel 17"


def job(name: str, owner: str, age: float = 750) -> tuple[Job, Status]:
    made = Job(name, "kubernetes", "tensorflow", (), time.time() - age, owner=owner)
    return made, Status(State.RUNNING, ())


class Known:
    """A session that knows some jobs, and answers after a while."""

    def __init__(self, *found: tuple[Job, Status], after: float = 0.0) -> None:
        self.last: Any = None
        self.started: set[str] = set()
        self.asked = 0
        self.found, self.after = list(found), after
        self.fault: ClusterFault | None = None

    async def jobs(self, faults: list[Any]) -> list[tuple[Job, Status]]:
        self.asked += 1
        await asyncio.sleep(self.after)
        if self.fault:
            faults.append(self.fault)
        return list(self.found)

    def owns(self, job: Job) -> bool:
        return job.owner.startswith("ada@laptop")


class Shown(list[str]):
    def show(self, event: Any) -> None:
        assert isinstance(event, Notice)
        self.append(event.text)


def reported(
    earlier: LeftRunning, session: Known, named: Sequence[str] = (), lasts: float = 0.05
) -> list[str]:
    shown = Shown()

    async def main() -> None:
        async with earlier.reported(session, shown, named):  # type: ignore[arg-type]
            await asyncio.sleep(lasts)

    asyncio.run(main())
    return shown


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_it_is_said_once(gone: int) -> None:
    earlier, session = LeftRunning(OWN), Known(job("mine", f"ada@laptop kernel {gone}"))
    sentence = "still running from before: mine (12m, `%ciao attach mine`)"
    assert reported(earlier, session) == [sentence]
    assert reported(earlier, session) == []
    assert session.asked == 1


def test_several_are_named_and_many_counted(gone: int) -> None:
    owner = f"ada@laptop kernel {gone}"
    jobs = [job(f"job-{n}", owner, 7200) for n in range(7)]
    (text,) = reported(LeftRunning(OWN), Known(*jobs[:2]))
    assert text == "still running from before: job-0 (2h), job-1 (2h) (`%ciao attach NAME`)"
    (text,) = reported(LeftRunning(OWN), Known(*jobs))
    assert "job-6 (2h) and 2 more" in text


def test_jobs_of_living_kernels_of_others_and_own_ones_are_left_out() -> None:
    living = job("followed", f"ada@laptop kernel {os.getpid()}", age=0)
    own = job("own", OWN, age=-1)
    others = job("theirs", "bob@desk kernel 4")
    over = (job("over", "ada@laptop")[0], Status(State.FAILED, (), settled=True))
    assert reported(LeftRunning(OWN), Known(living, own, others, over)) == []


def test_in_a_container_the_kernel_before_had_the_same_number() -> None:
    (text,) = reported(LeftRunning(OWN), Known(job("mine", OWN, age=60)))
    assert "mine (1m" in text


def test_a_job_of_the_seconds_before_a_restart_is_told_of_by_a_later_cell() -> None:
    """The first cell cannot tell it from its own job: their clocks may differ."""
    own, before = job("own", OWN, age=0.5), job("before", OWN, age=2)
    now = [time.time()]
    earlier, session = LeftRunning(OWN, lambda: now[0]), Known(before)
    assert reported(earlier, session) == []
    session.started.add("own")
    session.found.append(own)
    now[0] += 6
    (text,) = reported(earlier, session)
    assert "before: before (8s" in text
    assert "own" not in text


def test_a_number_that_is_another_process_by_now_is_no_kernel_that_lives() -> None:
    """As in a new pod: processes and threads count from 1 there too."""
    reused = job("mine", f"ada@laptop kernel {os.getpid()}", age=1e9)
    assert "mine" in reported(LeftRunning(OWN), Known(reused))[0]
    thread = threading.Thread(target=(ended := threading.Event()).wait)
    thread.start()
    try:
        of_thread = job("mine", f"ada@laptop kernel {thread.native_id}", age=0)
        assert "mine" in reported(LeftRunning(OWN), Known(of_thread))[0]
    finally:
        ended.set()
        thread.join()


def test_a_command_that_lists_all_jobs_leaves_nothing_to_say() -> None:
    earlier, session = LeftRunning(OWN), Known(job("mine", "ada@laptop"))
    earlier.are_listed()
    assert reported(earlier, session) == []
    assert session.asked == 0


def test_a_job_that_the_command_names_is_no_news() -> None:
    session = Known(job("mine", "ada@laptop"))
    assert reported(LeftRunning(OWN), session, ["attach", "mine"]) == []


def test_a_slow_answer_delays_nothing_and_comes_with_the_next_cell() -> None:
    earlier, session = LeftRunning(OWN), Known(job("mine", "ada@laptop"), after=60)
    assert reported(earlier, session) == []
    session.after = 0.0
    assert len(reported(earlier, session)) == 1


def test_nothing_is_said_within_a_jobs_output() -> None:
    earlier, session = LeftRunning(OWN), Known(job("mine", "ada@laptop"), after=0.02)
    shown = Shown()

    async def main() -> None:
        async with earlier.reported(session, shown):  # type: ignore[arg-type]
            await asyncio.sleep(0)
            session.last = "a job"
            await asyncio.sleep(0.1)

    asyncio.run(main())
    assert shown == []
    assert len(reported(earlier, session)) == 1


def test_a_cluster_that_is_away_is_asked_a_few_times_only() -> None:
    earlier, session = LeftRunning(OWN), Known()
    session.fault = ClusterFault("away")
    for _ in range(6):
        assert reported(earlier, session) == []
    assert session.asked == 3
