"""A package index that wants a password, and hashes: what a cell uses, and never shows or keeps."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

import pytest

from ciao_kernel.errors import describe
from tests.helpers.jobs import Ended, Place, Recorder, wait
from tests.helpers.packages import Index
from tests.integration.local.test_packages import index as index
from tests.integration.local.test_packages import shown

PASSWORD = "hunter2"
CELL = "%framework=tensorflow\n%worker=2\n{}\nimport app; print(app.version)\n"


@pytest.fixture
def guarded(index: Index) -> Index:
    index.add("app", "1.0")
    index.password = PASSWORD
    return index


def with_password(index: Index, word: str = PASSWORD) -> str:
    return index.url.replace("://", f"://jane:{word}@")


def commands(place: Place) -> str:
    """The command lines of all processes that were started from here."""
    found = []
    for pid in place.alive():
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
        except OSError:  # it has ended
            continue
    return "\n".join(found)


def told(ended: Ended) -> str:
    """All that the cell shows."""
    error = "\n".join(describe(ended.error)) if ended.error else ""
    return f"{ended.display.notices}\n{error}\n{ended.display.data('worker-0').decode()}"


def kept(place: Place) -> list[Path]:
    """Files of ciao that hold the password."""
    files = [path for path in place.storage.rglob("*") if path.is_file()]
    return [path for path in files if PASSWORD.encode() in path.read_bytes()]


@pytest.mark.second("packages")
@pytest.mark.parametrize(
    "lines",
    [
        "--index-url {url}\napp\n",
        "-i {url}\napp\n",
        "--index-url {bare}\n--extra-index-url {url}\napp\n",
        "--index-url {bare}\n--find-links {links}\napp @ {file}\n",
        "--no-index\napp @ {file}\n",
    ],
    ids=["index-url", "i", "extra-index-url", "file", "file alone"],
)
def test_a_password_in_a_file_stays_with_pip(
    jobs: Place, guarded: Index, lines: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = with_password(guarded)
    places = {"url": url, "links": url, "bare": guarded.url}
    file = url.replace("/simple", "/files/app-1.0-py3-none-any.whl")
    jobs.write("requirements.txt", lines.format(**places, file=file))
    guarded.stall.clear()

    async def main() -> Ended:
        display = Recorder()
        text = CELL.format("%requirements=requirements.txt")
        work = asyncio.ensure_future(jobs.ended(text, jobs.session(), display))
        await wait(guarded.stalled.is_set)
        assert "pip" in (running := commands(jobs))
        assert PASSWORD not in running
        guarded.stall.set()
        return await work

    ended = asyncio.run(main())

    assert shown(ended) == "1.0\n"
    assert PASSWORD not in told(ended)
    assert PASSWORD not in caplog.text
    assert not kept(jobs)


@pytest.mark.parametrize(
    "word", ["wr0ng-hunter2", "hunter2%2Fx", "hunter2/x", "a@hunter2", "hunter2:x"]
)
@pytest.mark.stands_for("packages")
def test_a_wrong_password_is_not_shown(
    jobs: Place, guarded: Index, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    jobs.write("requirements.txt", f"--index-url {with_password(guarded, word)}\napp\n")

    ended = jobs.run(CELL.format("%requirements=requirements.txt"))

    assert ended.error is not None
    assert PASSWORD not in told(ended)
    assert PASSWORD not in caplog.text
    assert not kept(jobs)
    assert ("%2F" in ended.error.hint) is ("/" in word)


@pytest.mark.parametrize(
    "line",
    [
        "%packages=--index-url {url} app",
        "%packages='--index-url {url}' app",
        "%packages=--index-url={url} app",
        "%packages=app -i{url}",
        "%packages={url}/app-1.0-py3-none-any.whl",
        "%packages='app @ {url}/app-1.0-py3-none-any.whl'",
        "%requirements='--index-url {url}'",
        "%requirements={url}",
        "%pipIndex={url}\n%packages=app",
        "%pipIndex={url} {url}\n%packages=app",
        "%pipIndx={url}\n%packages=app",
    ],
)
def test_a_password_in_a_cell_is_refused_and_not_shown(
    jobs: Place, guarded: Index, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    ended = jobs.run(CELL.format(line.format(url=with_password(guarded))))

    assert ended.error is not None
    assert PASSWORD not in told(ended)
    assert PASSWORD not in caplog.text
    assert not kept(jobs)
    assert not guarded.asked


def hashes(index: Index) -> dict[str, str]:
    return {
        name.partition("-")[0]: hashlib.sha256(raw).hexdigest() for name, raw in index.files.items()
    }


@pytest.mark.second("packages")
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_packages_pinned_by_hashes(jobs: Place, index: Index, newline: str) -> None:
    index.add("app", "1.0", "lib>=1")
    index.add("lib", "2.0")
    digests = hashes(index)
    lines = [
        f"{name}=={version} \\\n    --hash=sha256:{'0' * 64}"
        f" \\\n    --hash=sha256:{digests[name]}\n"
        for name, version in (("app", "1.0"), ("lib", "2.0"))
    ]
    text = f"--index-url {index.url}\n{''.join(lines)}    # via app\n"
    jobs.write("requirements.txt", text.replace("\n", newline))
    cell = CELL.format("%requirements=requirements.txt")
    assert shown(jobs.run(cell)) == "1.0\n"

    index.files.clear()
    index.add("app", "1.0", "lib>=1", code="other = 1")
    index.add("lib", "2.0")
    jobs.write(
        "requirements.txt", f"{text}\n# changed, so that it is installed again\n--prefer-binary\n"
    )
    error = jobs.run(cell).error
    assert error is not None
    assert "DO NOT MATCH THE HASHES" in "\n".join(describe(error))


def test_a_dependency_without_a_hash_is_named(jobs: Place, index: Index) -> None:
    index.add("app", "1.0", "lib>=1")
    index.add("lib", "2.0")
    jobs.write(
        "requirements.txt",
        f"--index-url {index.url}\napp==1.0 --hash=sha256:{hashes(index)['app']}\n",
    )
    ended = jobs.run(CELL.format("%requirements=requirements.txt"))
    assert ended.error is not None
    assert "lib" in told(ended)
    assert "hash" in told(ended)


def test_a_hash_in_a_cell(jobs: Place, index: Index) -> None:
    index.add("app", "1.0")
    wish = f"'app==1.0 --hash=sha256:{hashes(index)['app']}'"
    cell = CELL.format(f"%pipIndex={index.url}\n%packages={wish}")
    assert shown(jobs.run(cell)) == "1.0\n"
