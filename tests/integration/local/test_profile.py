"""Profiles of running jobs of this machine, from outside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.commands import Caller, execute
from ciao_kernel.display import flame
from ciao_kernel.errors import UsageError
from ciao_kernel.model import Job, Profile
from ciao_kernel.session.inspection import picture, query
from ciao_kernel.session.session import Session
from ciao_kernel.session.warm.pool import WarmPool
from tests.helpers import hangs
from tests.helpers.jobs import Place, Recorder, cell, interrupted, wait

HEADER = "%framework=python\n%worker=2\n"
PROGRAM = """
import hashlib, os, time

def work():
    hashlib.pbkdf2_hmac("sha256", b"data", b"salt", 2**31 - 1)

print("begins", flush=True)
if os.environ["CIAO_REPLICA"] == "worker-0":
    work()
time.sleep(1000)
"""
IN_C = hangs.line(PROGRAM, "pbkdf2", HEADER)
ASLEEP = hangs.line(PROGRAM, "time.sleep", HEADER)


def running(
    jobs: Place,
    text: str,
    *replicas: str,
    during: Callable[[Session, Recorder], Awaitable[Any]],
    pool: WarmPool | None = None,
    patience: float = 60.0,
) -> Recorder:
    """Run a job, do something when all replicas have written a line, then stop it."""
    display = Recorder()

    async def main() -> None:
        session = jobs.session()
        session.warm = pool
        work = asyncio.ensure_future(session.run(cell(text), display, jobs.folder))
        for one in replicas:
            await wait(lambda one=one: work.done() or display.lines(one), patience)
        assert not work.done(), work.exception()
        try:
            await during(session, display)
        finally:
            await interrupted(work)
            if pool is not None:
                await pool.close()

    asyncio.run(main())
    return display


async def profiled(session: Session, *words: str) -> Profile:
    """The profile that a command shows."""
    shown = Recorder()
    caller = Caller(session, shown, lambda text: pytest.fail(text), Path())
    await execute(["profile", *words], caller)
    (made,) = [event for event in shown.events if isinstance(event, Profile)]
    return made


async def until_they_stand(session: Session, job: Job, *patterns: str) -> None:
    """Wait until the picture of a job has these lines; a busy process may answer late."""
    backend, _, _ = await session.find(job.name)
    async with asyncio.timeout(60):
        text = ""
        while not all(re.search(line, text) for line in patterns):
            text = picture.text(job, await query.ask(backend, job))


@pytest.mark.stands_for("operators")
def test_calls_in_c_of_one_replica_or_of_all(jobs: Place) -> None:
    stands = (
        rf"worker-0  line {IN_C} in work \(in C\) +hashlib",
        rf"worker-1  line {ASLEEP} +time.sleep\(1000\)",
    )

    async def look(session: Session, display: Recorder) -> None:
        assert display.job
        name = display.job.name
        await until_they_stand(session, display.job, *stands)
        one = await profiled(session, f"{name}/worker-0", "--seconds", "1")
        assert re.fullmatch(rf"profile of {name}: 1 s, \d+ samples of worker-0", one.title)
        (call,) = one.tree.calls
        (below,) = call.calls
        assert (below.name, below.detail[:19]) == (f"line {IN_C} in work", "hashlib.pbkdf2_hmac")
        assert below.count == call.count == one.tree.count > 0
        short = (session, name, "--seconds", "1")
        both = await profiled(*short)
        assert {call.name for call in both.tree.calls} == {f"line {IN_C + 4}", f"line {ASLEEP}"}
        assert both.remarks == ()
        # An interrupt ends the wait and the process that samples.
        asking = asyncio.ensure_future(profiled(session, name, "--seconds", "100"))
        while "being asked" not in " ".join((await profiled(*short)).remarks):
            if asking.done():  # the short one was first
                asking = asyncio.ensure_future(profiled(session, name, "--seconds", "100"))
        await interrupted(asking)
        while (again := await profiled(*short)).remarks:  # the other process has not ended yet
            assert "being asked" in again.remarks[0]
        assert again.tree.count

    shown = running(jobs, HEADER + PROGRAM, "worker-0", "worker-1", during=look)
    assert all(shown.data(one) == b"begins\n" for one in ("worker-0", "worker-1"))

    async def after() -> None:
        assert shown.job
        with pytest.raises(UsageError, match=r"is over .*only a running job has a profile"):
            await profiled(jobs.session(), shown.job.name)

    asyncio.run(after())


def test_a_run_in_warm_replicas_is_seen_below_the_agent(jobs: Place) -> None:
    stands = (
        rf"worker-0  line {IN_C + 1} in work \(in C\) +hashlib",
        rf"worker-1  line {ASLEEP + 1} +time.sleep\(1000\)",
    )

    async def look(session: Session, display: Recorder) -> None:
        assert display.job
        name = display.job.name
        await until_they_stand(session, display.job, *stands)
        for _ in range(2):  # as the cell knows the job, and as another terminal finds it
            made = await profiled(session, f"{name}/worker-0", "--seconds", "1")
            (call,) = made.tree.calls
            assert [call.name, call.calls[0].name] == [
                f"line {IN_C + 5}",
                f"line {IN_C + 1} in work",
            ]
            _, job, _ = await session.find(name)
            for one in (job, display.job):
                await until_they_stand(session, one, *stands)
            session = jobs.session()

    running(
        jobs, HEADER + "%warm\n" + PROGRAM, "worker-0", "worker-1", during=look, pool=WarmPool()
    )


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_slow_rank_is_the_one_that_does_not_wait(jobs: Place) -> None:
    header = "%framework=pytorch\n%master=1\n%worker=2\n"
    loader = hangs.line(hangs.SLOW, "time.sleep", header)
    average = hangs.line(hangs.SLOW, "dist.all_reduce", header)
    replicas = ("master-0", "worker-0", "worker-1")

    async def look(session: Session, display: Recorder) -> None:
        assert display.job
        for one in replicas:  # torchrun may have written the first line
            await display.until("step 3", replica=one, patience=300)
        made = await profiled(session, display.job.name, "--seconds", "8")
        print(flame.text(made))
        assert re.fullmatch(
            r"worker-0 waits \d+ % of its time for other replicas, the others \d+ %: it is the "
            rf"slow one, and spends \d+ % in line {loader} in loader\.",
            made.remarks[0],
        )
        assert f"line {average} in average" in flame.svg(made)

    running(jobs, header + hangs.SLOW, *replicas, during=look, patience=300)
