"""Where the replicas of a job on the cluster stand: real programs, looked into by pods/exec."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import pytest

from ciao_kernel.backends.kubernetes.backend import KubernetesBackend
from ciao_kernel.display import flame
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Profile
from ciao_kernel.session.inspection import picture, profile, query
from tests.cluster.faults import policies
from tests.e2e.jobs.conftest import EXEC, Team, rules
from tests.helpers import hangs
from tests.helpers.jobs import Ended, Recorder, wait

HEADER = "%framework=pytorch\n%worker=2\n"


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("training")
@pytest.mark.usefixtures("with_frameworks")
def test_a_hanging_pytorchjob_names_the_rank_that_does_not_wait(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    texts, shown = [], []
    average = hangs.line(hangs.LOADER, "dist.all_reduce", HEADER)
    loader = hangs.line(hangs.LOADER, "while number", HEADER)
    all_reduce = f"master-0, worker-1  line {average} in average → all_reduce (in C)"

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for one in ("master-0", "worker-0", "worker-1"):
            await display.until("step 6", replica=one, patience=300)
        assert display.job
        shown.append(display)
        # The cell asks by itself, perhaps at the start too; a process is asked by one at a time.
        await wait(lambda: all_reduce in display.notices, 120)
        backend = KubernetesBackend(team.settings())
        for whole in (False, True):
            began = time.monotonic()
            found = await query.ask(backend, display.job)
            print(f"asked in {time.monotonic() - began:.2f} s")
            texts.append(picture.text(display.job, found, whole=whole))
        await backend.close()
        team.user.allow(*rules())
        backend = KubernetesBackend(team.settings())  # rights are remembered for some minutes
        with pytest.raises(BackendError, match="right to get pods/exec"):
            await query.ask(backend, display.job)
        await backend.close()
        work.cancel()

    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    with pytest.raises(asyncio.CancelledError):
        team.run(HEADER + hangs.LOADER, during=look, images=images, silence=2.0)
    print(*texts, shown[0].notices, sep="\n")
    for text in (*texts, shown[0].notices):
        assert all_reduce in text
        assert f"worker-0            line {loader}" in text or f"line {loader + 1} in" in text
        assert "worker-0 stands elsewhere than all others." in text
    assert "all_reduce\n" in texts[1]
    for one in ("master-0", "worker-0", "worker-1"):
        assert shown[0].data(one).startswith(b"step 0\nstep 3\nstep 6\n")
        assert b"stack_handler" not in shown[0].data(one)


@pytest.mark.second("operators")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("training")
@pytest.mark.usefixtures("with_frameworks")
def test_the_profile_of_a_pytorchjob_names_the_slow_rank(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    found: list[Profile] = []

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for one in ("master-0", "worker-0", "worker-1"):
            await display.until("step 3\n", replica=one, patience=300)
        assert display.job
        backend = KubernetesBackend(team.settings())
        began = time.monotonic()
        samples = await query.sample(backend, display.job, display.job.replicas, 6.0)
        print(f"sampled in {time.monotonic() - began:.2f} s")
        found.append(profile.of(display.job, samples, 6.0))
        await backend.close()
        work.cancel()

    images = {"pytorch": team.namespace.cluster.image("pytorch")}
    with pytest.raises(asyncio.CancelledError):
        team.run(HEADER + hangs.SLOW, during=look, images=images)
    print(flame.text(found[0]))
    loader = hangs.line(hangs.SLOW, "time.sleep", HEADER)
    average = hangs.line(hangs.SLOW, "dist.all_reduce", HEADER)
    assert re.fullmatch(
        r"worker-0 waits \d+ % of its time for other replicas, the others \d+ %: it is the slow "
        rf"one, and spends \d+ % in line {loader} in loader\.",
        found[0].remarks[0],
    )
    assert f"line {average} in average" in flame.text(found[0])


@pytest.mark.second("operators")
@pytest.mark.timeout(900)
def test_threads_that_wait_for_each_other_in_a_restricted_namespace(
    team: Team, figure: Callable[[str], None]
) -> None:
    team.namespace.label(policies.pod_security("restricted"))
    team.images["tensorflow"] = team.namespace.cluster.image("s2i-python")  # its user is not root
    team.user.allow(*rules(), *rules(EXEC))
    header = "%framework=tensorflow\n%worker=8\n"
    lend = hangs.line(hangs.LOCKS, "        with second:", header)
    borrow = hangs.line(hangs.LOCKS, "        with first:", header)
    wanted = (
        r"worker-0, worker-1, worker-2, worker-3 and 4 more +line \d+ → join +one\.join\(\)\n"
        rf"    thread borrow +line {borrow} in borrow +with first:\n"
        rf"    thread lend +line {lend} in lend +with second:"
    )
    took: list[float] = []

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        for number in range(8):
            await display.until("begins", replica=f"worker-{number}", patience=300)
        assert display.job
        backend = KubernetesBackend(team.settings())
        text, until = "", time.monotonic() + 120
        while not re.search(wanted, text):  # they may still print
            assert time.monotonic() < until, text
            began = time.monotonic()
            text = picture.text(display.job, await query.ask(backend, display.job))
            took.append(time.monotonic() - began)
        await backend.close()
        work.cancel()

    with pytest.raises(asyncio.CancelledError):
        team.run(header + hangs.LOCKS, during=look)
    figure(f"8 replicas asked in {took[-1]:.2f} s")
