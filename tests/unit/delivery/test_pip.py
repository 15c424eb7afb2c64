"""The lock under which pip runs."""

from __future__ import annotations

import asyncio
import errno
import fcntl
from pathlib import Path

import pytest

from ciao_kernel.delivery.packages import pip
from ciao_kernel.errors import EnvironmentFault


def test_who_waits_is_told_once(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[str] = []
        lock = tmp_path / "deep" / "one.lock"

        async def second() -> None:
            async with pip.alone(lock, lambda: told.append("waits")):
                told.append("runs")

        async with pip.alone(lock, lambda: told.append("never")):
            waiting = asyncio.ensure_future(second())
            await asyncio.sleep(3 * pip._POLL)
            assert told == ["waits"]
        await waiting
        assert told == ["waits", "runs"]

    asyncio.run(main())


def test_a_folder_for_packages_needs_files_and_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    async def main(lock: Path) -> str:
        with pytest.raises(EnvironmentFault, match="packages cannot be stored in") as caught:
            async with pip.alone(lock, lambda: None):
                pass
        return caught.value.message

    (tmp_path / "file").touch()
    assert "Not a directory" in asyncio.run(main(tmp_path / "file" / "deep" / "one.lock"))
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert "No locks available" in asyncio.run(main(tmp_path / "one.lock"))
