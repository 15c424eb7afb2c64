"""Many runs in warm replicas: while log streams are cut, and in many replicas at once.

By hand, with more of all: ``CIAO_TEST_EDITS=200 CIAO_TEST_CUTS=50 CIAO_TEST_REPLICAS=32 pytest
tests/e2e/jobs/test_warm_endurance.py``.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ciao_kernel.session.session import Session
from tests.cluster.faults.proxy import Proxy
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, Team, made, rules
from tests.e2e.jobs.test_warm import EDITS, WARM, as_kernel, pods
from tests.e2e.jobs.test_warm_training import (
    census_at_rest,
    here,
    holds_no_more,
    leaves_nothing,
    times,
)
from tests.helpers.first_lines import FirstLines, told
from tests.helpers.jobs import Recorder

CUTS = min(EDITS, int(os.environ.get("CIAO_TEST_CUTS", "3")))
REPLICAS = int(os.environ.get("CIAO_TEST_REPLICAS", "4"))
LINES = 40
OPEN = 8
"""Connections of the proxy, which is in this process, and threads of tests: far fewer than cuts."""
SAYS = """
import time
for line in range(40):
    print("run {0} line", line, flush=True)
    time.sleep(0.01)
"""


def wanted(number: int) -> list[str]:
    return [f"run {number} line {line}" for line in range(LINES)]


@pytest.mark.second("trials")
@pytest.mark.timeout(300 + 20 * EDITS)
def test_edited_cells_while_connections_are_cut(
    team: Team, proxy: Proxy, figure: Callable[[str], None]
) -> None:
    team.user.allow(*rules(), *rules(WARM))
    head = "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n%warm\n"
    ways = itertools.cycle((
        proxy.reset, proxy.close, lambda: proxy.reset(inside_record=True),
        lambda: proxy.truncate(500),
    ))  # fmt: skip
    every = EDITS // CUTS

    async def cut(display: Recorder) -> None:
        await display.until("line 3", replica="worker-1")
        await asyncio.to_thread(next(ways))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(proxy.pass_on)

    async def body(session: Session) -> None:
        cuts, before = 0, None
        for number in range(1, EDITS + 1):
            display = Recorder()
            text = head + SAYS.format(number)
            work = asyncio.ensure_future(session.run(text, display, team.folder))
            if number % every == 0 and cuts < CUTS:
                cuts += 1
                await cut(display)
            await work
            assert "may be lost" not in display.notices
            for replica in ("worker-0", "worker-1"):
                assert display.data(replica).decode().splitlines() == wanted(number)
            if cuts == 1 and before is None:
                before = await census_at_rest(team), here()
        assert cuts == CUTS
        assert before is not None
        await leaves_nothing(team, *before, more=OPEN)
        figure(f"{EDITS} edited cells, {CUTS} cuts: {2 * LINES * EDITS} lines, each once")

    as_kernel(team, body)


@pytest.mark.second("trials")
@pytest.mark.timeout(600 + 20 * EDITS)
def test_edited_cells_in_many_replicas(
    namespace: Namespace,
    figure: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = made(namespace, tmp_path, monkeypatch, [*rules(JOBS), *rules(WARM)])
    team.images["python"] = namespace.cluster.image("tools")
    head = f"%framework=python\n%api=job\n%worker={REPLICAS}\n%warm\n"

    async def body(session: Session) -> None:
        took, cells = [], []
        for number in range(1, EDITS + 1):
            begun, display = time.monotonic(), FirstLines()
            await session.run(head + SAYS.format(number), display, team.folder)
            took.append(time.monotonic() - begun)
            cells.append(display)
            for index in range(REPLICAS):
                got = display.data(f"worker-{index}").decode().splitlines()
                assert got == wanted(number)
            if number == min(2, EDITS):
                before = here()
        assert len(pods(team)) == REPLICAS
        await holds_no_more(before, OPEN)
        figure(
            f"{REPLICAS} replicas, {EDITS} edited cells, {REPLICAS * LINES * EDITS} lines, each "
            f"once; the first cell {took[0]:.1f} s, later {times('cells', took[1:])}; "
            f"{told(cells[1:])}"
        )

    as_kernel(team, body)
