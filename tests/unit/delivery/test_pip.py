"""The lock under which pip runs, and what its failures mean."""

from __future__ import annotations

import asyncio
import errno
import fcntl
from pathlib import Path

import pytest

from ciao_kernel.builders import pip_errors
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


RETRY = (
    "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after "
    "connection broken by 'ReadTimeoutError(\"HTTPSConnectionPool(host='pypi.org', port=443): "
    "Read timed out. (read timeout=15)\")': /simple/numpy/"
)


def test_a_request_that_was_answered_later_is_not_the_cause() -> None:
    unknown = "ERROR: No matching distribution found for pandsa"
    failed = pip.Failed([RETRY, "Collecting numpy", unknown])
    assert not failed.away
    assert "pip cannot install" in failed.explained().message
    assert isinstance(pip_errors.explained(failed, print), pip_errors.NoWheel)


@pytest.mark.parametrize(
    ("lines", "pages"),
    [
        ([RETRY, "ERROR: No matching distribution found for numpy"], [
            "Could not fetch URL https://pypi.org/simple/numpy/: connection error: "
            "HTTPSConnectionPool(host='pypi.org', port=443): Max retries exceeded (Caused by "
            "ReadTimeoutError('Read timed out.')) - skipping"
        ]),
        ([RETRY, "ERROR: No matching distribution found for numpy"], [
            "Could not fetch URL https://pypi.org/simple/numpy/: pypi.org didn't respond within "
            "15.0 seconds - skipping"
        ]),
        ([RETRY, "error: connection-failed", "", "× Failed to connect to pypi.org"], []),
        ([RETRY, "pip._vendor.urllib3.exceptions.ReadTimeoutError: Read timed out."], []),
    ],
)  # fmt: skip
def test_an_index_that_never_answers_is_the_cause(lines: list[str], pages: list[str]) -> None:
    failed = pip.Failed(lines, pages)
    assert failed.away
    assert "does not answer" in failed.explained().message
