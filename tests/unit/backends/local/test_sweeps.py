"""Searches for the processes of jobs are shared, by those that ask at the same moment."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ciao_kernel.backends.local import processes, sweeps


class Searches:
    """Stands for the search of processes: the marks of each, and when they end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[tuple[str, ...]] = []
        self.go = threading.Event()
        self.go.set()
        self.error: OSError | None = None
        monkeypatch.setattr(processes, "sweep", self._sweep)

    def _sweep(self, *marks: str) -> None:
        self.found.append(marks)
        assert self.go.wait(60)
        if self.error:
            raise self.error


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(monkeypatch)


def test_those_of_the_same_moment_share_one(searches: Searches) -> None:
    async def main() -> None:
        marks = [f"job-{number}" for number in range(100)]
        await asyncio.gather(*(sweeps.sweep(mark, f"{mark}-2") for mark in marks))
        assert len(searches.found) == 1
        assert set(searches.found[0]) == {*marks, *(f"{mark}-2" for mark in marks)}
        await sweeps.sweep("later")
        assert searches.found[1:] == [("later",)]

    asyncio.run(main())


def test_who_asks_while_one_runs_gets_another(searches: Searches) -> None:
    """A process of its job may have been started after the search looked at its place."""

    async def main() -> None:
        searches.go.clear()
        first = asyncio.ensure_future(sweeps.sweep("first"))
        while not searches.found:
            await asyncio.sleep(0.001)
        second = asyncio.ensure_future(sweeps.sweep("second"))
        while len(searches.found) < 2:
            await asyncio.sleep(0.001)
        searches.go.set()
        await asyncio.gather(first, second)
        assert searches.found == [("first",), ("second",)]

    asyncio.run(main())


def test_one_that_is_cancelled_leaves_the_others_theirs(searches: Searches) -> None:
    async def main() -> None:
        searches.go.clear()
        one, other = (asyncio.ensure_future(sweeps.sweep(mark)) for mark in ("one", "other"))
        while not searches.found:
            await asyncio.sleep(0.001)
        one.cancel()
        await asyncio.wait({one})
        assert one.cancelled()
        assert not other.done()
        searches.go.set()
        await other

    asyncio.run(main())


def test_a_search_that_fails_fails_for_all(searches: Searches) -> None:
    async def main() -> None:
        searches.error = OSError(24, "Too many open files")
        ends = await asyncio.gather(
            sweeps.sweep("one"), sweeps.sweep("other"), return_exceptions=True
        )
        assert ends == [searches.error] * 2
        searches.error = None
        await sweeps.sweep("later")

    asyncio.run(main())


def test_each_event_loop_has_its_own(searches: Searches) -> None:
    """A subshell of the kernel has its own thread and event loop."""
    threads = [threading.Thread(target=asyncio.run, args=(sweeps.sweep(name),)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(searches.found) == [("a",), ("b",)]
    assert not sweeps._asked
