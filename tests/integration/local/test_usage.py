"""What the replicas of a local job use, by their real processes."""

from __future__ import annotations

import asyncio

from ciao_kernel.model.usage import Usage
from ciao_kernel.session.inspection import query
from tests.helpers.jobs import PATIENCE, Place, Recorder, cell, interrupted, wait

MI = 1024 * 1024
PROGRAM = """\
%framework=python
%worker=2
import os, subprocess, sys, time

child = "x = bytearray(150 << 20); print('begun', flush=True); import time; time.sleep(600)"
if os.environ["CIAO_REPLICA"] == "worker-0":
    subprocess.Popen([sys.executable, "-c", child], env={})
else:
    print("begun", flush=True)
time.sleep(600)
"""


def test_children_count_also_those_without_the_mark(jobs: Place) -> None:
    display = Recorder()

    async def main() -> list[Usage]:
        session = jobs.session()
        work = asyncio.ensure_future(session.run(cell(PROGRAM), display, jobs.folder))
        for one in ("worker-0", "worker-1"):
            await wait(lambda one=one: work.done() or display.lines(one), PATIENCE)
        assert display.job
        report = await query.usage(session.backend("local"), display.job)
        assert "All replicas share this machine" in report.remark
        await interrupted(work)
        after = await query.usage(session.backend("local"), display.job)
        assert [one.fault for one in after.replicas] == ["it has ended (Stopped)"] * 2
        return list(report.replicas)

    first, second = asyncio.run(main())
    assert [str(one.replica) for one in (first, second)] == ["worker-0", "worker-1"]
    for one in (first, second):
        assert not one.fault
        assert one.memory
        assert one.peak
        assert one.cpu is not None
        assert one.peak >= one.memory > MI
    assert first.memory - second.memory > 150 * MI  # type: ignore[operator]
