"""Cells that run in warm replicas of this machine (``%warm``)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.local.inspection import stacks
from ciao_kernel.commands import Caller, execute
from ciao_kernel.delivery.output import results
from ciao_kernel.errors import BackendError, JobFailed, JobLost, JobStopped, UsageError
from ciao_kernel.model import State
from ciao_kernel.session.session import Session
from ciao_kernel.session.warm import found_runs
from ciao_kernel.session.warm.pool import WarmPool
from tests.helpers.colors import uncolored
from tests.helpers.jobs import Ended, Place, Recorder, cell, interrupted, wait
from tests.integration.local.test_stacks import picture_of

HEAD = "%framework=python\n%worker=2\n%warm\n"
WHO = "import os; print('zygote', os.getppid())\n"
Kernel = Callable[[Callable[[Session], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def kernel(jobs: Place) -> Kernel:
    """Runs cells as one kernel does, in one loop; its end ends the replicas."""

    def run(body: Callable[[Session], Coroutine[Any, Any, None]], **settings: Any) -> None:
        async def main() -> None:
            session = jobs.session(**settings)
            session.warm = WarmPool()
            try:
                await body(session)
            finally:
                await session.warm.close()
                await wait(lambda: not jobs.training())

        asyncio.run(main())

    return run


def zygotes(ended: Ended) -> set[str]:
    """The processes that have forked the programs."""
    text = b"".join(ended.display.data(name) for name in ended.display.replicas)
    return set(re.findall(r"zygote (\d+)", text.decode()))


@pytest.mark.stands_for("faults")
def test_an_edited_cell_runs_in_the_same_replicas(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        jobs.write("helper.py", "word = 'old'")
        jobs.write("data.txt", "one")
        program = (
            WHO + "import sys, helper\n"
            "print(helper.word, open('data.txt').read(), sys.argv[1:], end=' ')\n"
            "print(os.environ.get('N'), sys.stdout.write_through)\n"  # half a line is seen at once
            "print(sorted(os.listdir('.')))\nopen('made.txt', 'w').close()\n"
        )
        more = "%files=data.txt\n"
        first = await jobs.ended(HEAD + more + program, session)
        assert first.error is None
        jobs.write("helper.py", "word = 'new'")
        jobs.write("data.txt", "two")
        more += "%args=--epochs 3\n%envvar=N=5\n%deadline=10m\n%follow=worker\n"
        second = await jobs.ended(HEAD + more + program + "print('edited')\n", session)
        assert second.error is None
        assert zygotes(first) == zygotes(second)
        assert len(zygotes(first)) == 2
        assert first.job.name == second.job.name
        assert [one.job.warm_run for one in (first, second)] == [1, 2]
        assert second.result is not None
        assert second.result.state is State.SUCCEEDED
        for name in ("worker-0", "worker-1"):
            lines = second.display.data(name).decode().splitlines()[1:]
            assert lines[0] == "new two ['--epochs', '3'] 5 True"
            assert "'ciao_cell.py', 'data.txt', 'helper.py'" in lines[1]
            assert lines[2:] == ["edited"]
            assert first.display.data(name).decode().splitlines()[1] == "old one [] None True"
        assert (Path(first.job.place) / "made.txt").exists(), "the files of each run are kept"
        assert "stay warm" in first.display.notices
        assert "stay warm" not in second.display.notices

    kernel(body)


def test_each_run_with_a_folder_input_finds_its_own(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        jobs.write("input/train.csv", "one")
        program = "import os\nplace = os.environ.get('CIAO_INPUT')\n"
        program += "print(place and open(place + '/train.csv').read(), place)\n"
        ended = [
            await jobs.ended(f"{HEAD}{files}{program}", session)
            for files in ("", "%files=input/\n", "")
        ]
        assert [one.error for one in ended] == [None] * 3
        assert [one.display.data("worker-0").decode().strip() for one in ended] == [
            "None None",
            f"one {ended[1].job.workdir}/input",
            "None None",
        ]

    kernel(body)


def test_a_failed_run_shows_its_traceback_and_the_next_one_works(
    jobs: Place, kernel: Kernel
) -> None:
    async def body(session: Session) -> None:
        first = await jobs.ended(HEAD + WHO, session)
        program = "import os, time\nif os.environ['RANK'] == '1':\n    1 / 0\ntime.sleep(1000)\n"
        failed = await jobs.ended(HEAD + program, session)
        assert isinstance(failed.error, JobFailed)
        assert "worker-1 ended with exit code 1: ZeroDivisionError" in failed.error.message
        assert "  Cell, line 6, in <module>" in failed.error.traceback
        assert failed.display.state("worker-0") is State.STOPPED
        assert zygotes(await jobs.ended(HEAD + WHO, session)) == zygotes(first)

    kernel(body)


def test_the_stop_button_ends_the_run_and_not_the_replicas(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        first = await jobs.ended(HEAD + WHO, session)
        display = Recorder()
        program = (
            "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('deaf')\ntime.sleep(1000)\n"
        )
        running = asyncio.ensure_future(session.run(cell(HEAD + program), display, jobs.folder))
        await display.until("deaf")
        await display.until("deaf", replica="worker-1")
        await interrupted(running)
        await wait(lambda: "its replicas stay warm" in display.notices)
        assert session.last is not None
        assert session.last.state is State.STOPPED
        assert zygotes(await jobs.ended(HEAD + WHO, session)) == zygotes(first)

    kernel(body, stop_grace=0.5)


@pytest.mark.second("faults")
@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ("%framework=python\n%worker=1\n%warm\n", "%worker"),
        (HEAD + "%python=python3\n", "%python"),
        (HEAD + "%memory=1Gi\n", "%memory"),
        ("%framework=jax\n%worker=2\n%warm\n", "%framework"),
    ],
)
def test_a_header_that_differs_starts_new_replicas_and_says_why(
    jobs: Place, kernel: Kernel, changed: str, word: str
) -> None:
    async def body(session: Session) -> None:
        first = await jobs.ended(HEAD + WHO, session)
        second = await jobs.ended(changed + WHO, session)
        assert second.error is None
        assert f"the warm replicas of {first.job.name} end, because {word} differs" in (
            second.display.notices
        )
        assert not zygotes(first) & zygotes(second)
        assert second.job.warm_run == 1

    kernel(body)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("%framework=xgboost\n%worker=1\n%warm\n", "%warm does not work with xgboost"),
        (HEAD + "%detach\n", "%detach cannot be combined with %warm"),
        (HEAD + "%retries=2\n", "%retries cannot be combined with %warm"),
        (
            "%framework=tensorflow\n%worker=1\n%serve=worker\n%warm\n",
            "%serve cannot be combined with %warm",
        ),
        (HEAD + "%restartPolicy=OnFailure\n", "%restartPolicy cannot be combined with %warm"),
        (HEAD + "%cleanPolicy=all\n", "%cleanPolicy cannot be combined with %warm"),
        ("%framework=pytorch\n%worker=2\n%min=1\n%warm\n", "%min cannot be combined with %warm"),
    ],
)
def test_what_warm_replicas_cannot_do_is_refused(
    jobs: Place, kernel: Kernel, head: str, words: str
) -> None:
    async def body(session: Session) -> None:
        ended = await jobs.ended(head + "print(1)", session)
        assert ended.error is not None
        assert words in ended.error.message
        assert not jobs.leftovers()

    kernel(body)


def test_without_a_notebook_nothing_is_kept(jobs: Place) -> None:
    ended = jobs.run(HEAD + "print(1)")
    assert isinstance(ended.error, UsageError)
    assert "needs a notebook" in ended.error.message


@pytest.mark.second("faults")
def test_another_kernel_with_the_same_header_starts_replicas_of_its_own(
    jobs: Place, kernel: Kernel
) -> None:
    async def body(session: Session) -> None:
        other = jobs.session()
        other.warm = WarmPool()
        text = HEAD + "%name=shared\n" + WHO
        try:
            for number in (1, 2):
                both = asyncio.gather(jobs.ended(text, session), jobs.ended(text, other))
                first, second = await both
                assert (first.error, second.error) == (None, None)
                assert (first.job.warm_run, second.job.warm_run) == (number, number)
                assert first.job.name != second.job.name
                assert not zygotes(first) & zygotes(second)
                assert len(zygotes(first)) == len(zygotes(second)) == 2
        finally:
            await other.warm.close()

    kernel(body)


@pytest.mark.second("faults")
@pytest.mark.slow
def test_replicas_end_when_they_are_as_old_as_the_administrator_allows(
    jobs: Place, kernel: Kernel
) -> None:
    async def body(session: Session) -> None:
        display = Recorder()
        text = HEAD + "import time\nprint('up', flush=True)\ntime.sleep(1000)\n"
        with pytest.raises(JobFailed, match=r"have ended after 30s, .+ warmMost"):
            await session.run(cell(text), display, jobs.folder)
        await wait(lambda: not jobs.training())
        well = await jobs.ended(HEAD + "print('well')", session)
        assert (well.error, well.job.warm_run) == (None, 1)
        assert session.warm is not None
        pool = session.warm
        await wait(lambda: pool.parked is None)  # idle ones too
        await wait(lambda: not jobs.training())

    kernel(body, warm_most=30.0)


@pytest.mark.second("faults")
def test_a_parameter_server_never_ends_by_itself(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        head = "%framework=tensorflow\n%ps=1\n%worker=2\n%warm\n"
        program = (
            "import json, os, time\nconfig = json.loads(os.environ['TF_CONFIG'])\n"
            "print(config['task'], sum(map(len, config['cluster'].values())))\n"
            "print('ports', config['cluster'])\n"
            "if config['task']['type'] == 'ps': open('ready', 'w').close(); time.sleep(1000)\n"
            "while not os.path.exists('ready'): time.sleep(0.01)\n"
        )
        ports = []
        for _ in range(2):
            ended = await jobs.ended(head + program, session)
            assert ended.error is None
            assert ended.display.state("ps-0") is State.STOPPED
            assert ended.display.data("ps-0").startswith(b"{'type': 'ps', 'index': 0} 3\n")
            ports.append(ended.display.data("ps-0").splitlines()[1])
            assert str(ended.display.status.decided_by) == "worker-0"
        assert ports[0] != ports[1], "each run has ports of its own"

    kernel(body)


def test_values_and_files_of_each_run_come_back(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        head = HEAD + "%output=step output/\n"
        program = "import os\nstep = {0}\nopen(os.environ['CIAO_OUTPUT'] + '/a', 'w').close()\n"
        # The replicas start without %output.
        assert (await jobs.ended(HEAD + "print('nothing')", session)).error is None
        ended = [await jobs.ended(head + program.format(number), session) for number in (1, 2)]
        # Another run may ask for other names, and start a fresh interpreter.
        other = HEAD + "%output=word\nimport os\nos.environ.pop('A', 0)\nimport numpy\nword = 'x'"
        ended.append(await jobs.ended(other, session))
        assert [one.error for one in ended] == [None] * 3
        assert ended[2].job.warm_run == 4
        found = [results.of_job(one.job, one.display.status)[1] for one in ended]
        assert [dict(one) for one in found] == [{"step": 1}, {"step": 2}, {"word": "x"}]
        assert "brought back from worker-0: step" in ended[1].display.notices
        assert f"files of %output: output/a (0 bytes), in {ended[1].job.workdir}" in (
            ended[1].display.notices
        )
        for number in (0, 1):
            assert ended[number].result is not None
            assert (ended[number].result.folder / "output/a").exists()  # type: ignore[union-attr]
        _, later, status = await session.find(ended[0].job.name)
        assert dict(results.of_job(later, status)[1]) == {"word": "x"}, "those of the newest run"
        backend, later, _ = await session.find(ended[0].job.name)
        newest = await found_runs.find_run(backend, later)
        assert (newest.warm_run, newest.workdir) == (4, ended[2].job.workdir)
        texts: list[str] = []
        caller = Caller(session, Recorder(), texts.append, jobs.folder)
        await execute(["fetch", later.name, "output/", "--run", "2"], caller)
        assert texts == [
            f"files of the given paths: output/a (0 bytes), in {ended[0].job.workdir}\n"
        ]
        texts.clear()
        words = ["fetch", later.name, "model/", "--run", "2", "output/", "x.csv"]
        with pytest.raises(BackendError, match=r"no file of \S+ matches model/, x\.csv\."):
            await execute(words, caller)
        assert texts == [
            f"files of the given paths: output/a (0 bytes), in {ended[0].job.workdir}\n"
        ]
        with pytest.raises(UsageError, match="has no run 9: its runs are 1 to 4"):
            await execute(["fetch", later.name, "--run", "9"], caller)

    kernel(body)


def test_a_run_goes_on_from_the_checkpoint_of_an_earlier_one(
    jobs: Place, kernel: Kernel, tmp_path: Path
) -> None:
    program = (
        "import os\n"
        "path = os.path.join(os.environ['CIAO_CHECKPOINT'], os.environ['RANK'])\n"
        "beside = os.path.join('checkpoint', os.environ['RANK'])\n"
        "step = int(open(beside).read()) if os.path.exists(beside) else 0\n"
        "print('from', step, open('data/word').read())\n"
        "open(path, 'w').write(str(step + 10))\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "word").write_text("mounted")

    async def body(session: Session) -> None:
        head = HEAD + "%name=saves\n%checkpoint\n%volume=claim:data\n"
        for step in (0, 10, 20):
            ended = await jobs.ended(head + program, session)
            assert ended.error is None, ended.error
            for name in ("worker-0", "worker-1"):
                assert ended.display.data(name).decode() == f"from {step} mounted\n"
        assert ended.job.warm_run == 3
        kept = jobs.storage / "checkpoints" / "saves"
        assert {one.read_text() for one in kept.iterdir()} == {"30"}

    kernel(body, volumes={"claim": str(tmp_path / "data")})


@pytest.mark.second("faults")
def test_a_deadline_is_that_of_a_run(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        await jobs.ended(HEAD + "pass", session)
        ended = await jobs.ended(HEAD + "%deadline=1s\nimport time; time.sleep(1000)", session)
        assert isinstance(ended.error, JobFailed)
        assert "longer than its deadline of 1 s" in ended.error.message
        assert (await jobs.ended(HEAD + "print('well')", session)).error is None

    kernel(body)


@pytest.mark.parametrize("again", ["%worker=2\n%gpu=1", "%worker=1\n%gpu=2"])
def test_the_gpus_of_the_replicas_are_there_for_the_next_cell(
    jobs: Place, kernel: Kernel, again: str
) -> None:
    first, more = "%worker=2\n%gpu=1", "print('devices', os.environ['CUDA_VISIBLE_DEVICES'])\n"
    text = f"%framework=python\n%warm\n{{}}\n{WHO}{more}"

    async def body(session: Session) -> None:
        one = await jobs.ended(text.format(first), session)
        assert one.error is None
        two = await jobs.ended(text.format(again), session)
        assert two.error is None, two.error.message
        assert (zygotes(one) == zygotes(two)) is (first == again)
        shown = b"".join(two.display.data(name) for name in two.display.replicas).decode()
        want = {"0", "1"} if first == again else {"0,1"}
        assert set(re.findall(r"devices (\S+)", shown)) == want

    kernel(body, devices=("0", "1"))


def test_gpus_of_another_job_are_taken_for_a_warm_cell_too(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        kept = await jobs.ended(f"%framework=python\n%worker=1\n%warm\n{WHO}", session)
        head = "%framework=python\n%name=other\n%worker=1\n%gpu=1\n%detach\n"
        other = await jobs.ended(f"{head}import time\ntime.sleep(999)", session)
        ended = await jobs.ended("%framework=python\n%worker=1\n%gpu=1\n%warm\n1", session)
        assert ended.error is not None
        assert "are used by other" in ended.error.message
        again = await jobs.ended(f"%framework=python\n%worker=1\n%warm\n{WHO}", session)
        assert zygotes(again) == zygotes(kept), "they have not ended for that"
        assert other.result is not None
        await session.backend("local").delete(other.result.job)

    kernel(body, devices=("0",))


@pytest.mark.second("faults")
def test_variables_before_an_import_are_there_in_time(jobs: Place, kernel: Kernel) -> None:
    jobs.write("numpy.py", "import os\nfound = os.environ.get('KERAS_BACKEND')")
    jobs.write("conf.py", "import os\nos.environ['KERAS_BACKEND'] = '4'")

    async def body(session: Session) -> None:
        found, notices = [], ""
        texts = ["", "os.environ['KERAS_BACKEND'] = '3'\n", "", "os.environ.pop('A', 0)\n"]
        for lines in (*texts, "import conf\n"):
            program = (
                f"import os\n{lines}import numpy\nprint('found', os.environ.get('KERAS_BACKEND'))"
            )
            ended = await jobs.ended(HEAD + program, session)
            found.append(ended.display.data("worker-0").decode().split()[-1])
            notices += ended.display.notices
        assert found == ["None", "3", "None", "None", "4"]
        assert "a fresh interpreter: line 5 changes the environment" in notices
        assert "a fresh interpreter: conf.py changes the environment" in notices

    kernel(body)


@pytest.mark.second("faults")
def test_deleted_replicas_are_replaced_by_new_ones(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        first = await jobs.ended(HEAD + WHO, session)
        texts: list[str] = []
        display = Recorder()
        caller = Caller(session, display, texts.append, jobs.folder)
        await execute(["warm"], caller)
        assert first.job.name in "".join(texts)
        assert "idle, ends in" in "".join(texts)
        await execute(["delete", first.job.name], caller)
        assert session.warm is not None
        pool = session.warm
        await wait(lambda: pool.parked is None)
        second = await jobs.ended(HEAD + WHO, session)
        assert second.error is None
        assert not zygotes(first) & zygotes(second)

    kernel(body)


@pytest.mark.second("faults")
def test_idle_replicas_are_said_to_wait_and_take_commands(
    jobs: Place, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_PATIENCE", 10.0)

    async def body(session: Session) -> None:
        name = (await jobs.ended(HEAD + WHO, session)).job.name
        texts: list[str] = []
        caller = Caller(session, Recorder(), texts.append, jobs.folder)
        await execute(["stacks", name], caller)
        assert texts.pop().splitlines()[1:] == ["  worker-0, worker-1  waits for its next run"]
        await execute(["top", name], caller)
        table = texts.pop()
        assert re.search(r"^worker-1 +[\d.]+ +\d+Mi", table, re.MULTILINE), table
        await execute(["exec", f"{name}/worker-1", "--", "ls"], caller)
        assert texts.pop().splitlines() == ["ciao_warm_agent.py", "ciao_warm_zygote.py", "run-1"]
        terminal = Caller(jobs.session(), Recorder(), texts.append, jobs.folder)
        for asks in (caller, terminal):
            with pytest.raises(UsageError, match="no job runs") as caught:
                await execute(["top"], asks)
            assert f"The replicas of {name} wait for their next run." in caught.value.hint
        display = Recorder()
        text = HEAD + "import time\nprint('up', flush=True)\ntime.sleep(1000)\n"
        running = asyncio.ensure_future(session.run(cell(text), display, jobs.folder))
        await display.until("up")
        await display.until("up", replica="worker-1")
        for asks in (caller, terminal):
            await execute(["top"], asks)
            assert "worker-1" in texts.pop()
        await interrupted(running)

    kernel(body)


@pytest.mark.second("faults")
def test_replicas_deep_in_an_import_are_said_to_import(
    jobs: Place, kernel: Kernel, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    (tmp_path / "torch.py").write_text(
        "import os, time\n"
        "def deep(calls):\n"
        "    if calls:\n        return deep(calls - 1)\n"
        f"    while not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
        "deep(200)\n"
    )

    async def body(session: Session) -> None:
        text = f"{HEAD}%envvar=PYTHONPATH={tmp_path}\nimport torch\nprint('imported')\n"
        display = Recorder()
        running = asyncio.ensure_future(session.run(cell(text), display, jobs.folder))
        wanted = re.compile(r"stand at \S+\n  worker-0, worker-1  imports modules for its runs$")
        seen = ""
        try:
            async with asyncio.timeout(60):
                while not wanted.search(seen) and not running.done():
                    seen = await picture_of(session, display.job) if display.job else ""
                    await asyncio.sleep(0.05)
            assert not running.done()
        except TimeoutError:
            raise AssertionError(seen) from None
        finally:
            go_on.touch()
            await running
        assert display.data("worker-1") == b"imported\n"

    kernel(body)


@pytest.mark.second("faults")
def test_a_replica_that_is_killed_in_a_run_fails_it(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        first = await jobs.ended(HEAD + WHO, session)
        display = Recorder()
        running = asyncio.ensure_future(
            session.run(
                cell(HEAD + "print('up'); import time; time.sleep(1000)"), display, jobs.folder
            )
        )
        await display.until("up")
        zygote = int(next(iter(zygotes(first))))
        agent = int(Path(f"/proc/{zygote}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(agent, signal.SIGKILL)
        with pytest.raises((JobFailed, JobLost)):
            await running
        assert (await jobs.ended(HEAD + "print('well')", session)).error is None

    kernel(body)


@pytest.mark.second("faults")
def test_idle_replicas_end_by_themselves(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        head = "%framework=python\n%warm=3s\n"
        first = await jobs.ended(head + WHO, session)
        await wait(lambda: not jobs.alive())
        second = await jobs.ended(head + WHO, session)
        assert second.error is None
        assert (
            f"the warm replicas of {first.job.name} have ended, because no run began in them for "
            "3s; new ones start"
        ) in second.display.notices
        assert not zygotes(first) & zygotes(second)

    kernel(body)


@pytest.mark.second("faults")
def test_idle_replicas_of_a_kernel_that_is_there_end_without_a_failure(
    jobs: Place, kernel: Kernel
) -> None:
    """The exit code of the last run is that of a job whose kernel has not seen it."""

    async def body(session: Session) -> None:
        failed = await jobs.ended("%framework=python\n%warm=10s\nraise SystemExit(3)\n", session)
        assert isinstance(failed.error, JobFailed)
        await wait(lambda: not jobs.alive())
        _, status = await session.backend("local").find(failed.job.name)
        assert status.state is State.SUCCEEDED

    kernel(body)


@pytest.mark.second("faults")
def test_a_job_deleted_in_a_run_is_a_stopped_run(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        display = Recorder()
        running = asyncio.ensure_future(
            session.run(
                cell(HEAD + "print('up'); import time; time.sleep(1000)"), display, jobs.folder
            )
        )
        await display.until("up")
        assert display.job is not None
        await session.backend("local").delete(display.job)
        with pytest.raises(JobStopped):
            await running

    kernel(body)


def test_attach_to_idle_replicas_shows_the_newest_run_and_ends_as_it_did(
    jobs: Place, kernel: Kernel
) -> None:
    async def body(session: Session) -> None:
        good = await jobs.ended(HEAD + "print('one')\n", session)
        display, texts = Recorder(), list[str]()
        caller = Caller(session, display, texts.append, jobs.folder)
        await execute(["attach"], caller)
        assert display.data("worker-0") == display.data("worker-1") == b"one\n"
        program = (
            "import os, time\nprint('two', flush=True)\nif os.environ['RANK'] == '0':\n"
            "    open('printed', 'w').close()\n    time.sleep(1000)\n"
            "while not os.path.exists('printed'):\n    time.sleep(0.01)\nraise SystemExit(3)\n"
        )
        await jobs.ended(HEAD + program, session)
        display = Recorder()
        with pytest.raises(JobFailed, match="worker-1 ended with exit code 3"):
            await execute(
                ["attach", good.job.name], Caller(session, display, texts.append, jobs.folder)
            )
        assert display.data("worker-0") == display.data("worker-1") == b"two\n"
        assert display.state("worker-0") is State.STOPPED
        assert "this is run 2, which is over" in display.notices
        again = await jobs.ended(HEAD + "print('three')\n", session)
        assert again.job.warm_run == 3, "the replicas still wait"

    kernel(body)


def test_logs_are_told_apart_by_run_and_have_no_markers(jobs: Place, kernel: Kernel) -> None:
    async def body(session: Session) -> None:
        for number in (1, 2, 3):
            text = f"print('number {number}')\nprint('', end='')"
            ended = await jobs.ended(HEAD + text, session)
        assert session.last is not None
        name = session.last.name
        texts: list[str] = []
        caller = Caller(session, Recorder(), texts.append, jobs.folder)
        await execute(["logs", name, "--run", "2"], caller)
        await execute(["logs", name, "--replica", "worker-0"], caller)
        await execute(["logs", name, "--tail", "1", "--replica", "worker-1"], caller)
        plain = [uncolored(text).splitlines() for text in texts]
        assert plain[0] == ["[worker-0] number 2"]
        assert plain[1] == ["[worker-1] number 2"]
        assert plain[2] == [f"[worker-0] number {number}" for number in (1, 2, 3)]
        assert plain[3] == ["[worker-1] number 3"]
        texts.clear()
        await execute(["logs", name, "--run", "2", "--tail", "0"], caller)
        for number in ("9", "0", "-1"):
            with pytest.raises(UsageError, match=f"has no run {number}: its runs are 1 to 3"):
                await execute(["logs", name, "--run", number], caller)
        assert not texts
        log = Path(ended.display.status.replicas[0].log).read_text()
        assert re.findall("^number .*$", log, re.MULTILINE) == ["number 1", "number 2", "number 3"]
        display = Recorder()
        attached = asyncio.ensure_future(session.attach(name, display))
        await display.until("number 3")
        await interrupted(attached)
        assert display.data("worker-0") == b"number 1\nnumber 2\nnumber 3\n"

    kernel(body)
