"""Followers of one job in two event loops: a cell, and `%ciao attach` in a subshell."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.lifecycle.begun_tries import BegunTry
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.known_tries import KnownTries
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job

JOB = Job("j", "kubernetes", "tensorflow", (), 0.0, "team", resource="tfjobs", uid="1")
_WAIT = 30


class Follower:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Start work, and return when it waits for the first time or is over."""
        started = asyncio.run_coroutine_threadsafe(work, self.loop)
        self.do(asyncio.sleep(0))
        return started

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do work and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_WAIT)

    def close(self) -> None:
        """End the loop and its thread, with whatever still runs in it."""
        self.do(self._cancelled())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_WAIT)
        self.loop.close()

    async def _cancelled(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class Creation:
    """A follower that creates a try as long as the test wants."""

    def __init__(self, tries: KnownTries, follower: Follower) -> None:
        self._tries, self._follower = tries, follower
        self.begun, self._over = threading.Event(), asyncio.Event()
        self._work = follower.start(self._create())

    async def _create(self) -> None:
        async with self._tries.creation(JOB):
            self.begun.set()
            await self._over.wait()

    def end(self) -> None:
        """End it, and raise its error."""
        self._follower.loop.call_soon_threadsafe(self._over.set)
        self._work.result(_WAIT)


@pytest.fixture
def followers() -> Iterator[tuple[Follower, Follower]]:
    both = Follower(), Follower()
    yield both
    for one in both:
        one.close()


def test_tries_are_created_one_after_the_other(followers: tuple[Follower, Follower]) -> None:
    tries = KnownTries()
    for first, second in (followers, followers[::-1], followers):
        holder, waiter = Creation(tries, first), Creation(tries, second)
        assert holder.begun.is_set()
        assert not waiter.begun.is_set()
        holder.end()
        assert waiter.begun.wait(_WAIT)
        waiter.end()


def test_a_stop_waits_for_the_creation_of_the_other(followers: tuple[Follower, Follower]) -> None:
    for first, second in (followers, followers[::-1]):
        tries = KnownTries()
        for holder in (first, second):  # who has waited once is bound to its loop
            creation = Creation(tries, holder)
            stops = [one.start(tries.stop(JOB)) for one in followers]
            assert not any(stop.done() for stop in stops)
            creation.end()
            for stop in stops:
                stop.result(_WAIT)
        assert tries.is_stopped(JOB)


class Server:
    """Has no object; notes that somebody has looked."""

    def __init__(self) -> None:
        self.asked = False

    async def find(self, _: str) -> None:
        self.asked = True


async def remove(begun: BegunTry, over: asyncio.Event) -> None:
    """Begin a removal that lasts until the event."""

    async def removal() -> None:
        await over.wait()

    begun.removals.add(asyncio.get_running_loop().create_task(removal()))
    await asyncio.sleep(0)


def test_a_removal_of_the_other_is_awaited(followers: tuple[Follower, Follower]) -> None:
    for remover, finder in (followers, followers[::-1]):
        begun, server, over, own = BegunTry(), Server(), asyncio.Event(), asyncio.Event()
        remover.do(remove(begun, over))
        finder.do(remove(begun, own))
        finder.loop.call_soon_threadsafe(own.set)
        client = cast("Client", server)
        found = finder.start(begun.find(client, Deletions(), JOB, "/jobs/j"))
        assert not found.done()
        assert not server.asked
        remover.loop.call_soon_threadsafe(over.set)
        found.result(_WAIT)
        assert server.asked
        assert not begun.removals


def test_a_removal_whose_loop_has_ended_is_not_awaited() -> None:
    begun, loop = BegunTry(), asyncio.new_event_loop()
    loop.run_until_complete(remove(begun, asyncio.Event()))
    loop.close()
    found = begun.find(cast("Client", Server()), Deletions(), JOB, "/jobs/j")
    asyncio.run(asyncio.wait_for(found, _WAIT))
    assert not begun.removals
