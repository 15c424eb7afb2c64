"""What a command writes comes into a cell at a rate that Jupyter passes on."""

from __future__ import annotations

import asyncio

import pytest

from ciao_kernel.commands import logs
from ciao_kernel.commands.cell_output import CellOutput
from ciao_kernel.display.lines import NO_LIMIT, Prefixer
from ciao_kernel.model import Replica


def test_a_progress_bar_that_comes_in_pieces_stays_one() -> None:
    shown: list[str] = []
    cell = CellOutput(shown.append, 1e6, 1e6)

    async def main() -> None:
        add = cell.stream()
        for piece in (b"loading\n 10%\r", b" 20%\r", b" 30%\rdone\n\x1b[3", b"1mred\x1b[0m"):
            add(piece)
            cell.flush()
        assert "".join(shown) == "loading\ndone\n"
        add(b" and more\nasked")
        cell.flush()
        await cell.end()

    asyncio.run(main())
    assert "".join(shown) == "loading\ndone\nred and more\nasked"


@pytest.mark.parametrize("line", ["x" * 99 + "\n", "ü" * 49 + "\n", "x" * 1_000_000])
def test_all_comes_and_never_faster_than_the_rate(line: str) -> None:
    rate, now = 1_000_000, 0.0
    wanted = (line * (2_000_000 // len(line)))[:2_000_000]
    writes: list[tuple[float, str]] = []
    cell = CellOutput(lambda text: writes.append((now, text)), rate, 1e9, lambda: now)

    async def main() -> None:
        nonlocal now
        cell.stream()(wanted.encode())
        while sum(len(text) for _, text in writes) < len(wanted):
            assert now < 60
            cell.flush(last=True)
            now += 0.1
        await cell.end()

    asyncio.run(main())
    assert "".join(text for _, text in writes) == wanted
    sizes = [len(text.encode()) for _, text in writes]
    assert max(sizes) <= rate / 2
    for first in range(len(writes)):
        for last in range(first, len(writes)):
            took = writes[last][0] - writes[first][0]
            assert sum(sizes[first : last + 1]) <= rate * (took + 0.5) + 1


def test_what_is_beyond_the_limit_is_counted() -> None:
    shown: list[str] = []
    cell = CellOutput(shown.append, 1e6, 10)

    async def main() -> None:
        cell.stream()(b"0123456\n")
        assert not cell.full
        cell.stream()(b"abcdef\n")
        assert cell.full
        cell.leave_out(1000)
        await cell.end()

    asyncio.run(main())
    assert "".join(shown) == "0123456\nab\n… 1,005 more bytes are not shown.\n"


def test_an_interrupt_waits_for_no_rate() -> None:
    shown: list[str] = []
    cell = CellOutput(shown.append, 1000, 1e9)

    async def main() -> None:
        cell.stream()(b"line\n" * 1000)
        cell.stop()
        assert cell._timer is None  # nothing is written any more

    asyncio.run(main())
    assert "".join(shown) == "line\n" * 83 + "\n… 4,585 more bytes are not shown.\n"


def test_a_log_is_formatted_no_further_than_it_is_shown() -> None:
    class Counts(Prefixer):
        seen = 0

        def format(self, replica: Replica, data: bytes) -> str:
            Counts.seen += len(data)
            return super().format(replica, data)

    shown: list[str] = []
    cell, data = CellOutput(shown.append, 1e9, 1_000_000), b"x" * 63 + b"\n"

    async def main() -> None:
        prefixer = Counts(color=False, limit=NO_LIMIT)
        await logs._show(cell, prefixer, Replica("worker", 0), data * 200_000)
        await cell.end()

    asyncio.run(main())
    assert Counts.seen < 2_000_000
    assert "more bytes are not shown" in shown[-1]
    assert shown[0].startswith("[worker-0] xxx")
