"""Which refusals end a transfer at once, and which it waits out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery.fetch import Fetch
from ciao_kernel.errors import Refused
from ciao_kernel.model.queries import Streams
from ciao_kernel.session.copy_target import CopyTarget


class Gateway:
    """Refuses each command, by one code after the other; the last one stays."""

    def __init__(self, *codes: int, signed_out: bool = False) -> None:
        self.codes, self.asked, self.signed_out = list(codes), 0, signed_out

    async def execute(self, command: Sequence[str], streams: Streams) -> int:
        self.asked += 1
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        signed_out = self.signed_out and code == 401
        raise Refused(f"the server answered {code}.", code=code, signed_out=signed_out)

    def fetch(self, folder: Path, **more: Any) -> Fetch:
        into = CopyTarget(folder, "model")
        return Fetch(self.execute, "python3", ("model/",), into, 10**9, pause=0.0, **more)


@pytest.mark.parametrize(
    ("code", "tries"),
    [(401, 6), (408, 6), (425, 6), (429, 6), (503, 6), (400, 1), (403, 1), (404, 1)],
)
def test_a_refusal_that_may_pass_is_no_end(code: int, tries: int, tmp_path: Path) -> None:
    gateway = Gateway(code)
    with pytest.raises(Refused, match=str(code)):
        asyncio.run(gateway.fetch(tmp_path).run())
    assert gateway.asked == tries


def test_refused_credentials_are_waited_for_and_told_once_each_time(tmp_path: Path) -> None:
    told: list[str] = []
    gateway = Gateway(*[503] * 5, *[401] * 9, *[503] * 5, *[401] * 9, 404, signed_out=True)
    with pytest.raises(Refused, match="404"):
        asyncio.run(gateway.fetch(tmp_path, patience=600.0, on_signed_out=told.append).run())
    assert gateway.asked == 29
    assert told == ["the server answered 401."] * 2


def test_a_401_of_a_node_is_no_matter_of_credentials(tmp_path: Path) -> None:
    told: list[str] = []
    gateway = Gateway(401)
    with pytest.raises(Refused, match="401"):
        asyncio.run(gateway.fetch(tmp_path, patience=600.0, on_signed_out=told.append).run())
    assert (gateway.asked, told) == (6, [])


def test_refused_credentials_are_waited_for_so_long_only(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="401"):
        asyncio.run(Gateway(401, signed_out=True).fetch(tmp_path, patience=0.1).run())


def test_a_replica_that_waits_for_its_turn_is_asked_again_after_such_a_refusal(
    tmp_path: Path,
) -> None:
    gateway = Gateway(429, 401, 503, 404, 500)
    asyncio.run(gateway.fetch(tmp_path).hold())
    assert gateway.asked == 4
