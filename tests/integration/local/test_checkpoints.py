"""The folder of %checkpoint on this machine, and the time of %grace to save one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ciao_kernel.model import State
from tests.helpers.jobs import Ended, Place, Recorder, interrupted, wait

COUNTS = """
import os
path = os.environ["CIAO_CHECKPOINT"] + "/step"
step = int(open(path).read()) if os.path.exists("checkpoint/step") else 0
open(path, "w").write(str(step + 1))
print("step", step)
"""
SAVES = """
import os, signal, sys, time
def save(*_):
    time.sleep(2)
    open(os.environ["CIAO_CHECKPOINT"] + f"/saved-{os.environ.get('RANK', 0)}", "w").close()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(600)
"""


def run(jobs: Place, lines: str, body: str = COUNTS, **settings: object) -> Ended:
    async def main() -> Ended:
        session = jobs.session(**settings)  # type: ignore[arg-type]
        return await jobs.ended(f"%framework=tensorflow\n%worker=1\n{lines}\n{body}", session)

    return asyncio.run(main())


def test_a_later_job_of_the_name_goes_on_and_a_clean_up_keeps_the_folder(
    jobs: Place, tmp_path: Path
) -> None:
    first = run(jobs, "%name=mnist\n%checkpoint\n%cleanPolicy=all")
    second = run(jobs, "%name=mnist\n%checkpoint")
    third = run(jobs, "%name=mnist\n%checkpoint")
    other = run(jobs, "%name=other\n%checkpoint")
    told = [one.display.data("worker-0").decode() for one in (first, second, third, other)]
    assert third.job.name == "mnist-2"
    assert told == ["step 0\n", "step 1\n", "step 2\n", "step 0\n"]

    (tmp_path / "own").mkdir()
    run(jobs, "%name=mnist\n%checkpoint=runs/a", volumes={"runs": str(tmp_path / "own")})
    run(jobs, "%name=mnist\n%checkpoint", checkpoint=str(tmp_path / "all"))
    assert (tmp_path / "own" / "a" / "mnist" / "step").read_text() == "1"
    assert (tmp_path / "all" / "mnist" / "step").read_text() == "1"


CONTINUES = """
import os, signal, sys, time
path = os.environ["CIAO_CHECKPOINT"] + "/step"
if os.path.exists(path):
    print("goes on at step", open(path).read())
    sys.exit()
def save(*_):
    print("saving", flush=True)
    while not os.path.exists("../../../go on"):
        time.sleep(0.01)
    open(path, "w").write("7")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(600)
"""
HEAD = "%framework=tensorflow\n%worker=1\n%name=mnist\n%checkpoint\n%grace=120s\n"


def test_the_next_job_waits_until_a_stopped_one_has_saved(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        first, second, other = Recorder(), Recorder(), Recorder()
        cell = asyncio.ensure_future(jobs.ended(HEAD + CONTINUES, session, first))
        await first.until("training")
        assert first.job
        stopping = asyncio.ensure_future(session.backend("local").stop(first.job, "test"))
        await first.until("saving")
        third = asyncio.ensure_future(session.run(HEAD + CONTINUES, other, jobs.folder))
        waits = asyncio.ensure_future(jobs.ended(HEAD + CONTINUES, session, second))
        told = "waiting until the stopped job mnist has ended …"
        await wait(lambda: told in second.notices and told in other.notices)
        await interrupted(third)
        assert other.job is None, "an interrupt ends the wait"
        (jobs.storage / "go on").touch()
        ended = await waits
        await stopping
        await cell
        assert ended.error is None
        assert second.data("worker-0") == b"goes on at step 7\n"
        assert second.notices.count(told) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("folders", "message"),
    [({}, "has no folder on this machine"), ({"runs": "/nowhere"}, "does not exist")],
)
def test_a_claim_without_a_folder_here_is_refused_first(
    jobs: Place, folders: dict[str, str], message: str
) -> None:
    ended = run(jobs, "%checkpoint=runs", volumes=folders)
    assert ended.error is not None
    assert message in ended.error.message
    assert ended.display.job is None


@pytest.mark.parametrize(
    ("header", "ranks"),
    [
        pytest.param("%framework=tensorflow\n%worker=1", 1, id="python"),
        pytest.param(
            "%framework=pytorch\n%nprocPerNode=2",
            2,
            id="torchrun",
            marks=[pytest.mark.frameworks, pytest.mark.second("packages")],
        ),
        pytest.param(
            "%framework=pytorch\n%worker=1\n%min=1",
            1,
            id="elastic",
            marks=[pytest.mark.frameworks, pytest.mark.second("packages")],
        ),
    ],
)
def test_a_stopped_program_has_the_time_of_the_grace_to_save(
    jobs: Place, header: str, ranks: int
) -> None:
    async def main() -> None:
        session = jobs.session(stop_grace=0.2)
        text = f"{header}\n%name=saves\n%checkpoint\n%grace=20s\n{SAVES}"
        display = Recorder()
        cell = asyncio.ensure_future(jobs.ended(text, session, display))
        replica = "master-0" if "pytorch" in header and "min" not in header else "worker-0"
        await wait(lambda: display.data(replica).count(b"training") == ranks, 240)
        ((job, _),) = await session.jobs()
        await session.backend("local").stop(job, "test")
        await cell
        assert display.status.state is State.STOPPED

    asyncio.run(main())
    saved = (jobs.storage / "checkpoints" / "saves").iterdir()
    assert sorted(one.name for one in saved) == [f"saved-{rank}" for rank in range(ranks)]
