"""The first pieces of a log are joined as long as they come one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from ciao_kernel.backends.kubernetes.following import first_pieces
from ciao_kernel.errors import Refused
from ciao_kernel.kube.resume_position import Gap, Lines

PAUSE = object()
FAULT = Refused("no", code=403)


async def log(*parts: object) -> AsyncGenerator[Lines | Gap, None]:
    for number, part in enumerate(parts):
        if part is PAUSE:
            await asyncio.sleep(0.5)
        elif isinstance(part, Exception):
            raise part
        elif isinstance(part, Gap):
            yield part
        else:
            text = str(part)
            yield Lines(text.encode(), text.count("\n"), f"time {number}")


def read(size: int, *parts: object) -> tuple[list[str], str]:
    found: list[str] = []

    async def main() -> str:
        async with contextlib.aclosing(log(*parts)) as pieces:
            try:
                async for one in first_pieces.together(pieces, size):
                    found.append(one.text if isinstance(one, Gap) else one.data.decode())
            except Refused as error:
                return error.message
        return ""

    return found, asyncio.run(main())


@pytest.mark.parametrize(
    ("size", "parts", "found"),
    [
        (0, ("a\n", "b\n"), ["a\n", "b\n"]),
        (100, ("a\n", "b\n"), ["a\nb\n"]),
        (3, ("a\n", "b\n", "c\n"), ["a\nb\n", "c\n"]),
        (100, ("a\n", "b\n", PAUSE, "c\n", "d\n"), ["a\nb\n", "c\n", "d\n"]),
        (100, (PAUSE, "a\n", "b\n"), ["a\nb\n"]),
        (100, ("a\n", Gap("lost"), "b\n"), ["a\n", "lost", "b\n"]),
        (100, (Gap("lost"), "b\n"), ["lost", "b\n"]),
        (100, (), []),
        (100, ("a\n", PAUSE), ["a\n"]),
    ],
)
def test_what_comes_at_once_is_one_piece(
    size: int, parts: tuple[object, ...], found: list[str]
) -> None:
    assert read(size, *parts) == (found, "")


def test_lines_before_a_fault_are_not_lost() -> None:
    assert read(100, "a\n", "b\n", FAULT) == (["a\nb\n"], "no")


def test_the_joined_piece_has_the_count_and_the_last_time() -> None:
    async def main() -> Lines | Gap:
        return await anext(aiter(first_pieces.together(log("a\n", "b\nc\n"), 100)))

    assert asyncio.run(main()) == Lines(b"a\nb\nc\n", 3, "time 1")


def test_a_reader_that_is_stopped_leaves_nothing_behind() -> None:
    async def main() -> set[asyncio.Task[object]]:
        async with contextlib.aclosing(log("a\n", PAUSE, "b\n")) as pieces:

            async def work() -> None:
                async for _ in first_pieces.together(pieces, 100):
                    pass

            task = asyncio.create_task(work())
            await asyncio.sleep(0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(main()) == set()
