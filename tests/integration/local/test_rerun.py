"""`ciao rerun`: a job that runs again from what it was made of."""

from __future__ import annotations

import asyncio
import json

import pytest

from ciao_kernel.commands import Caller, execute
from ciao_kernel.errors import UsageError
from ciao_kernel.model import CleanPolicy, State
from ciao_kernel.session.session import Session
from ciao_kernel.session.warm.pool import WarmPool
from tests.helpers.jobs import Place, Recorder, cell, wait

TRAINS = """
    %framework=tensorflow
    %worker=1
    %checkpoint
    %envvar=TOKEN='a secret'
    %input=rate
    %args=x
    import os, sys
    import helper
    from ciao_input import rate
    path = os.environ["CIAO_CHECKPOINT"] + "/runs"
    runs = len(open(path).read()) if os.path.exists(path) else 0
    open(path, "a").write("x")
    print(helper.NAME, rate, sys.argv[1:], os.environ["TOKEN"], "run", runs)
"""


def test_a_rerun_has_the_source_of_the_job_and_its_checkpoint(jobs: Place) -> None:
    jobs.write("helper.py", "NAME = 'first'\n")
    jobs.write(".git/HEAD", f"{'1' * 40}\n")

    async def main() -> tuple[list[str], Session, str]:
        session, shown = jobs.session(), list[str]()
        first, text = Recorder(), list[str]()
        await session.run(cell(TRAINS), first, jobs.folder, variables={"rate": 0.5})
        jobs.write("helper.py", "NAME = 'changed since'\n")
        assert first.job
        for name in (first.job.name, f"{first.job.name}-2"):
            display = Recorder()
            caller = Caller(session, display, text.append, jobs.folder)
            await execute(["rerun", name], caller)
            shown.append(display.data("worker-0").decode())
        await execute(["describe", first.job.name], caller)
        return [first.data("worker-0").decode(), *shown], session, "".join(text)

    told, session, described = asyncio.run(main())
    assert told == [f"first 0.5 ['x'] a secret run {number}\n" for number in range(3)]
    assert session.last is not None
    assert session.last.state is State.SUCCEEDED
    facts = dict(line.split(maxsplit=1) for line in described.splitlines()[:12] if " " in line)
    assert facts["source"].startswith("sha256:")
    assert "1" * 40 in described
    assert "a secret" not in described


def test_a_warm_job_is_described_by_its_newest_run_and_runs_again_as_a_job_of_its_own(
    jobs: Place,
) -> None:
    head = "%framework=python\n%worker=1\n%warm\n%envvar=TOKEN='a secret'\n%output=loss out/\n"
    body = "import os\nos.mkdir('out')\nopen('out/a.txt', 'w').close()\nloss = NUMBER\n"

    async def main() -> None:
        session, text = jobs.session(), list[str]()
        session.warm = WarmPool()
        try:
            for number, args in (("1", "%args=first"), ("2", "%args=newest")):
                cell = f"{head}{args}\n{body}".replace("NUMBER", number)
                await session.run(cell, Recorder(), jobs.folder)
            assert session.last
            name = session.last.job.name
            await execute(["describe", name], Caller(session, Recorder(), text.append, jobs.folder))
            described = text.pop()
            again = Recorder()
            caller = Caller(session, again, text.append, jobs.folder)
            await execute(["rerun", name], caller)
            last = session.last
            assert last.job.name != name
            assert not last.job.warm_run
            assert "%warm" not in last.job.header
            assert "%args=newest" in last.job.header
            assert "a secret" not in last.job.header
            assert (last.folder / "out" / "a.txt").exists()
            await execute(["rerun", last.job.name], caller)
            assert "%warm" not in session.last.job.header
            await execute(["describe", last.job.name], caller)
            of = [line for line in described.splitlines() if line.startswith("source")]
            assert of == [line for line in text.pop().splitlines() if line.startswith("source")]
            assert "%args=newest" in described
            assert "%args=first" not in described
            assert "a secret" not in described
            await execute(["describe", name, "--output", "json"], caller)
            told = json.loads(text.pop())
            assert "%args=newest" in told["header"]
            assert told["made_of"]["source"] in described
            run = told["newest_run"]
            assert (run["number"], run["state"]) == (2, "Succeeded")
            assert [one["exit_code"] for one in run["replicas"]] == [0]
            await execute(["describe", last.job.name, "--output", "json"], caller)
            assert json.loads(text.pop())["newest_run"] is None
        finally:
            await session.warm.close()
            await wait(lambda: not jobs.training())

    asyncio.run(main())


def test_a_rerun_whose_results_would_be_removed_is_refused_as_its_cell_is(jobs: Place) -> None:
    text = "%framework=python\n%worker=1\n%name=gives\n%output=m.txt\nopen('m.txt', 'w').close()\n"

    async def main() -> None:
        first = jobs.session()
        await first.run(text, Recorder(), jobs.folder)
        removing = jobs.session(clean_policy=CleanPolicy.ALL)
        with pytest.raises(
            UsageError, match="cleanPolicy=all removes the files of the job"
        ) as told:
            await removing.rerun("gives", Recorder())
        assert "`%ciao config cleanPolicy=running`" in told.value.hint
        with pytest.raises(UsageError, match="cleanPolicy=all removes the files of the job"):
            await removing.run(text, Recorder(), jobs.folder)
        assert jobs.leftovers() == ["gives"]
        again = await first.rerun("gives", Recorder())
        assert (again.folder / "m.txt").exists()

    asyncio.run(main())


def test_a_job_without_a_record_says_why(jobs: Place) -> None:
    async def main() -> None:
        session = jobs.session()
        result = await session.run("%framework=python\n%worker=1\n1", Recorder(), jobs.folder)
        assert result is not None
        (result.folder / ".ciao" / "made_of.json").unlink()
        with pytest.raises(UsageError, match="no record of what"):
            await session.rerun(result.name, Recorder())

    asyncio.run(main())
