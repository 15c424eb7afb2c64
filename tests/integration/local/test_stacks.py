"""Jobs of this machine that hang, each in its own way: the picture names what holds them up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from ciao_kernel.backends.local.inspection import stacks
from ciao_kernel.model import Job
from ciao_kernel.session.inspection import picture, query, silence
from ciao_kernel.session.session import Session
from tests.helpers import hangs
from tests.helpers.jobs import Place, Recorder, cell, interrupted, wait

PATIENCE = 300.0
RANKS = ("master-0", "worker-0", "worker-1")
Look = Callable[[Session, Job], Awaitable[str]]


async def picture_of(session: Session, job: Job) -> str:
    backend, _, _ = await session.find(job.name)
    return picture.text(job, await query.ask(backend, job))


def hang(
    jobs: Place, text: str, *replicas: str, wanted: str, told: bool = False, **settings: float
) -> Recorder:
    """Run a job until its picture has a text, then stop it.

    Args:
        jobs: Runs it.
        text: The cell.
        replicas: They all have written a line before.
        wanted: A pattern for the text.
        told: Also wait until the cell shows a picture by itself.
        settings: The session's.
    """
    display = Recorder()

    async def main() -> None:
        session = jobs.session(**settings)
        work = asyncio.ensure_future(session.run(cell(text), display, jobs.folder))
        for one in replicas:
            await wait(lambda one=one: work.done() or display.lines(one), PATIENCE)
        assert not work.done(), work.exception()
        assert display.job
        if told:  # before this test asks: a process is asked by one at a time
            # The first picture may be one of the start.
            itself = re.compile(rf"no line for .*\n  {wanted}")
            await wait(lambda: itself.search(display.notices), PATIENCE)
        until = asyncio.get_running_loop().time() + PATIENCE
        while not re.search(wanted, found := await picture_of(session, display.job)):
            assert asyncio.get_running_loop().time() < until, found
        print(found)
        await interrupted(work)

    asyncio.run(main())
    return display


MEET = """
import os, time
open(os.environ["CIAO_REPLICA"], "w").close()
while not (os.path.exists("worker-0") and os.path.exists("worker-1")):
    time.sleep(0.01)
"""
"""Two replicas that go on together: a silence begins with the first line of either."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a busy machine have the time to answer, and the others to wait for it."""
    monkeypatch.setattr(stacks, "_PATIENCE", 10.0)
    monkeypatch.setattr(silence, "_BEFORE_STOP", 60.0)
    monkeypatch.setattr(silence, "_BEFORE_DEADLINE", 4.0)


@pytest.mark.stands_for("operators")
@pytest.mark.usefixtures("patient")
def test_two_threads_that_wait_for_each_others_lock(jobs: Place) -> None:
    header, program = "%framework=python\n%worker=2\n", MEET + hangs.LOCKS
    join = hangs.line(program, "one.join()", header)
    lend = hangs.line(program, "        with second:", header)
    borrow = hangs.line(program, "        with first:", header)
    wanted = (
        rf"worker-0, worker-1  +line {join} → join +one\.join\(\)\n"
        rf"    thread borrow +line {borrow} in borrow +with first:\n"
        rf"    thread lend +line {lend} in lend +with second:"
    )
    shown = hang(
        jobs, header + program, "worker-0", "worker-1", wanted=wanted, told=True, silence=0.5
    )
    # The silence, and the stop of a silent job.
    pictures = [text for text in shown.notices.split("no line for ") if re.search(wanted, text)]
    assert len(pictures) == 2
    assert all(shown.data(one) == b"begins\n" for one in ("worker-0", "worker-1"))


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rank_that_stays_in_its_loader(jobs: Place) -> None:
    header = "%framework=pytorch\n%master=1\n%worker=2\n"
    average = hangs.line(hangs.LOADER, "dist.all_reduce", header)
    loop = hangs.line(hangs.LOADER, "while number", header)
    hang(
        jobs,
        header + hangs.LOADER,
        "master-0",
        "worker-0",
        "worker-1",
        wanted=rf"master-0, worker-1 +line {average} in average → all_reduce \(in C\) .*\n"
        rf"  worker-0 +line ({loop}|{loop + 1}) in loader .*\n"
        r"worker-0 stands elsewhere than all others\.",
    )


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ranks_that_do_not_call_the_same_collectives(jobs: Place) -> None:
    header = "%framework=pytorch\n%worker=1\n"
    second = "    dist.all_reduce(value)\n    dist.all_reduce(value)\nelse"
    assert second in hangs.MISMATCH
    odd = hangs.line(hangs.MISMATCH, "dist.recv", header)
    reduces = odd - 4
    hang(
        jobs,
        header + hangs.MISMATCH,
        "master-0",
        "worker-0",
        wanted=rf"master-0 +line {reduces} → all_reduce \(in C\) .*\n"
        rf"  worker-0 +line ({odd}|{odd - 1}) → (recv|barrier) \(in C\)",
    )


@pytest.mark.second("packages")
@pytest.mark.alone
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_rank_that_leaves_out_a_collective_is_named_soon(
    jobs: Place, figure: Callable[[str], None]
) -> None:
    """The cell shows it by itself, with the line, within 5 seconds after the setting's silence."""
    header = "%framework=pytorch\n%master=1\n%worker=2\n"
    # Without a line long before the first of the program: silences are compared with earlier ones.
    header += "%envvar=TORCH_CPP_LOG_LEVEL=ERROR\n"
    reduce = hangs.line(hangs.SKIPS, "    dist.all_reduce(value)", header)
    barrier = hangs.line(hangs.SKIPS, "dist.barrier()", header)
    silence, display = 10, Recorder()

    async def main() -> float:
        session = jobs.session(silence=float(silence))
        work = asyncio.ensure_future(session.run(cell(header + hangs.SKIPS), display, jobs.folder))
        await wait(lambda: work.done() or all(map(display.lines, RANKS)), PATIENCE)
        began = asyncio.get_running_loop().time()
        itself = re.compile(
            rf"no line for .*(?:\n.*)*line {reduce} "
        )  # and no picture of the start
        await wait(lambda: work.done() or itself.search(display.notices), PATIENCE)
        seconds = asyncio.get_running_loop().time() - began
        await interrupted(work)
        return seconds

    seconds = asyncio.run(main())
    text = display.notices
    figure(f"named {seconds - silence:.1f} s after a silence of {silence} s")
    assert re.search(
        r"no line for .+; where .*\n"
        rf"  master-0, worker-1 +line {reduce} → all_reduce \(in C\) .*\n"
        rf"  worker-0 +line {barrier} → barrier \(in C\) .*\n"
        r"worker-0 stands elsewhere than all others\.",
        text,
    ), text
    assert seconds <= silence + 5


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_processes_of_torchrun(jobs: Place) -> None:
    header = "%framework=pytorch\n%master=1\n%nprocPerNode=2\n"
    average = hangs.line(hangs.LOADER, "dist.all_reduce", header)
    hang(
        jobs,
        header + hangs.LOADER,
        "master-0",
        wanted=rf"master-0\[0\] +line {average} in average → all_reduce \(in C\) .*\n"
        r"  master-0\[1\] +line \d+ in loader",
    )


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ranks_of_mpi_that_wait_for_a_message(jobs: Place) -> None:
    header = "%framework=mpi\n%worker=2\n"
    receive = hangs.line(hangs.RECEIVE, "comm.recv", header)
    wanted = rf"worker-0, worker-1 +line {receive} \(in C\) +comm\.recv"
    hang(jobs, header + hangs.RECEIVE, "worker-0", "worker-1", wanted=wanted)


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_parameter_server_that_never_starts(jobs: Place) -> None:
    header = "%framework=tensorflow\n%ps=1\n%worker=2\n"
    sleeps = hangs.line(hangs.NO_PS, "time.sleep", header)
    runs = hangs.line(hangs.NO_PS, "session.run", header)
    hang(
        jobs,
        header + hangs.NO_PS,
        "worker-0",
        "worker-1",
        wanted=rf"worker-0, worker-1 +line {runs} → run \(in C\) .*\n  ps-0 +line {sleeps}",
    )


def test_a_job_without_the_handler_says_so(jobs: Place) -> None:
    header = "%framework=python\n%worker=1\n%inspect=off\n"
    program = (
        "import sys, time\nprint([name for name in sys.modules if name.startswith('ciao_')])\n"
    )
    program += "time.sleep(1000)\n"
    wanted = r"worker-0  Python has just started, or runs without the handler\nA job has no handler"
    shown = hang(jobs, header + program, "worker-0", wanted=wanted, silence=0.1)
    assert shown.data("worker-0") == b"[]\n"
    assert "no line for" not in shown.notices


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_the_deadline_of_a_silent_job_shows_where_it_stood(jobs: Place) -> None:
    program = "import time\nprint(1)\ntime.sleep(1000)\n"
    # On a busy machine the program may begin seconds after the job.
    header = "%framework=python\n%worker=1\n%deadline=30\n"
    ended = jobs.run(header + program, silence=1.5)
    assert ended.error is not None
    assert "deadline" in ended.error.message
    silences = re.findall(
        r"no line for (\d+)s; where .*\n +worker-0 +line 6", ended.display.notices
    )
    assert silences
    assert int(silences[-1]) >= 2
