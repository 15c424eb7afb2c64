"""Edited cells in many warm replicas of this machine, with the times of their first lines.

By hand, with more of all: ``CIAO_TEST_REPLICAS=256 CIAO_TEST_EDITS=20 pytest
tests/integration/local/test_warm_scale.py``. A replica takes some 30 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ciao_kernel.session.session import Session
from tests.helpers.first_lines import FirstLines, told
from tests.helpers.jobs import Place, cell, wait
from tests.integration.local.test_warm import Kernel
from tests.integration.local.test_warm import kernel as kernel

REPLICAS = int(os.environ.get("CIAO_TEST_REPLICAS", "6"))
EDITS = int(os.environ.get("CIAO_TEST_EDITS", "3"))
LINES = 40


@pytest.mark.second("trials")
@pytest.mark.timeout(600 + 20 * EDITS)
def test_edited_cells_in_many_replicas(
    jobs: Place, kernel: Kernel, figure: Callable[[str], None]
) -> None:
    head = f"%framework=python\n%worker={REPLICAS}\n%warm\n"

    async def body(session: Session) -> None:
        cells, before = [], None
        for number in range(1, EDITS + 1):
            program = f"for line in range({LINES}):\n    print('run {number} line', line)\n"
            display = FirstLines()
            await session.run(cell(head + program), display, jobs.folder)
            cells.append(display)
            wanted = [f"run {number} line {line}" for line in range(LINES)]
            for index in range(REPLICAS):
                assert display.data(f"worker-{index}").decode().splitlines() == wanted
            if number == min(2, EDITS):
                before = await _at_rest(jobs)
        assert display.job is not None
        assert display.job.warm_run == EDITS
        assert before is not None
        for _ in range(100):
            after = await asyncio.to_thread(_census, jobs)
            if grown := [one for one, then in zip(after, before, strict=True) if one > then]:
                await asyncio.sleep(0.1)
            else:
                break
        assert not grown, (before, after)
        held = await asyncio.to_thread(_megabytes, jobs)
        figure(
            f"{REPLICAS} replicas, {REPLICAS * LINES * EDITS} lines of {EDITS} edited cells, each "
            f"once; the first cell: {told(cells[:1])}; later: {told(cells[1:])}; {held:.0f} MB, "
            f"{after[0]} processes and {after[1]} descriptors of the job after {EDITS} cells, "
            f"{before[0]} and {before[1]} after two"
        )

    kernel(body, local_replicas=float(max(REPLICAS, 128)))
    asyncio.run(wait(lambda: not jobs.alive()))


async def _at_rest(jobs: Place) -> tuple[int, int, int, int]:
    """Return the census when two in a row are equal: what a cell leaves behind ends soon."""
    last = None
    for _ in range(100):
        census = await asyncio.to_thread(_census, jobs)
        if census == last:
            return census
        last = census
        await asyncio.sleep(0.1)
    raise AssertionError(f"the processes of the job change all the time: {last}")


def _census(jobs: Place) -> tuple[int, int, int, int]:
    """Return processes and descriptors of the job, descriptors and threads of the kernel."""
    pids = jobs.alive()
    held = sum(_descriptors(str(pid)) for pid in pids)
    own = [one for one in threading.enumerate() if not one.name.startswith("asyncio_")]  # of tests
    return len(pids), held, _descriptors("self"), len(own)


def _descriptors(process: str) -> int:
    with contextlib.suppress(OSError):  # it may have ended
        return len(list(Path(f"/proc/{process}/fd").iterdir()))
    return 0


def _megabytes(jobs: Place) -> float:
    """Return the memory of all processes of jobs; a page that several share counts once."""
    kilobytes = 0
    for pid in jobs.alive():
        with contextlib.suppress(OSError):  # it may have ended
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
    return kilobytes / 1024
