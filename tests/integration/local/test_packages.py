"""Local jobs with packages of their own: an environment that is made once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ciao_kernel.backends.local import environment
from ciao_kernel.errors import EnvironmentFault, SourceError, UsageError
from ciao_kernel.model import Progress, State, Unit
from tests.helpers.jobs import Ended, Place, Recorder, interrupted, wait
from tests.helpers.packages import Index, serving


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    for name in list(os.environ):
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    monkeypatch.setenv("PIP_RETRIES", "1")
    with serving() as made:
        yield made


def cell(index: Index, wish: str, code: str = "import app; print(app.version)") -> str:
    return f"%framework=tensorflow\n%worker=2\n%pipIndex={index.url}\n{wish}\n{code}\n"


def environments(place: Place) -> list[str]:
    """Those that lie in the cache, whole or not."""
    folder = place.storage / "cache" / "environments"
    return [path.name for path in folder.glob("*") if path.is_dir()]


def shown(ended: Ended) -> str:
    assert ended.error is None, ended.error.message
    assert ended.result is not None
    assert ended.result.state is State.SUCCEEDED
    data = ended.display.data("worker-0")
    assert ended.display.data("worker-1") == data
    return data.decode()


def test_what_only_an_image_could_have_is_said(jobs: Place) -> None:
    text = "%framework=tensorflow\n%worker=2\n%apt=git\n%dockerfile=gone\nprint('here')\n"

    ended = jobs.run(text)

    assert shown(ended) == "here\n"
    said = "%apt (line 3), %dockerfile (line 4) have no effect on this machine: no image is built"
    assert ended.display.notices.count(said) == 1


@pytest.mark.stands_for("packages")
def test_every_replica_imports_what_is_asked_for(jobs: Place, index: Index) -> None:
    index.add("app", "1.0", "lib")
    index.add("lib", "3.0")
    index.add("psutil", "0.1")
    # Own and below: what the kernel's Python has stays as it is.
    code = "import app, lib, psutil; print(app.version, lib.version, psutil.__version__ > '1')"

    ended = jobs.run(cell(index, "%packages=app psutil", code))

    assert shown(ended) == "1.0 3.0 True\n"
    assert "installing app psutil …" in ended.display.notices
    assert "[pip]" not in ended.display.notices
    index.asked.clear()
    again = jobs.run(cell(index, "%packages=app psutil", code))
    assert shown(again) == "1.0 3.0 True\n"
    assert not index.asked
    assert "installing" not in again.display.notices
    assert len(environments(jobs)) == 1


@pytest.mark.second("packages")
def test_a_file_of_requirements_is_read_again(jobs: Place, index: Index) -> None:
    index.add("app", "1.0")
    index.add("app", "2.0")
    jobs.write("needs/requirements.txt", "-c held.txt\napp  # ours\n")
    jobs.write("needs/held.txt", "app<2\n")
    wish = "%requirements=needs/requirements.txt"

    assert shown(jobs.run(cell(index, wish))) == "1.0\n"
    jobs.write("needs/held.txt", "app<3\n")
    assert shown(jobs.run(cell(index, wish))) == "2.0\n"


def test_pip_has_the_settings_of_the_kernels_own_environment(
    jobs: Place, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip config --site` writes them; pip runs in another environment, which has none."""
    index.add("app", "1.0")
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {index.url}\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    ended = jobs.run(
        "%framework=tensorflow\n%worker=2\n%packages=app\nimport app; print(app.version)\n"
    )

    assert shown(ended) == "1.0\n"


def test_packages_go_to_no_other_place(
    jobs: Place, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("app", "1.0")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    for line in f"target = {tmp_path / 'x'}", f"prefix = {tmp_path / 'x'}":
        (tmp_path / "pip.conf").write_text(f"[install]\n{line}\n")

        ended = jobs.run(cell(index, "%packages=app"))

        assert isinstance(ended.error, EnvironmentFault)
        assert f"{line} in {tmp_path / 'pip.conf'}" in ended.error.message
        assert "PIP_CONFIG_FILE" in ended.error.hint
    assert environments(jobs) == []
    assert not index.asked


def test_what_lies_below_is_found_by_its_own_path_files(
    jobs: Place, index: Index, tmp_path: Path
) -> None:
    index.add("app", "1.0")
    own = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    (site,) = own.glob("lib/*/site-packages")
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / "ours.py").write_text("")
    (site / "edited.pth").write_text(f"{tmp_path / 'edited'}\n")
    text = f"%framework=tensorflow\n%worker=2\n%python={own}\n%pipIndex={index.url}\n"

    ended = jobs.run(text + "%packages=app\nimport app, ours\nprint(app.version)\n")

    assert ended.error is None, ended.error.message
    assert ended.display.data("worker-1") == b"1.0\n"


@pytest.mark.parametrize("later", ["1.0", ""])
def test_a_package_that_has_left_the_interpreter_is_installed(
    jobs: Place, index: Index, tmp_path: Path, later: str
) -> None:
    index.add("app", "2.0")
    own = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    (site,) = own.glob("lib/*/site-packages")

    def install(version: str) -> None:
        for old in site.glob("app-*.dist-info"):
            shutil.rmtree(old)
        (site / "app.py").write_text(f"version = 'below {version}'\n" if version else "1 / 0\n")
        if version:
            (site / f"app-{version}.dist-info").mkdir()
            metadata = f"Metadata-Version: 2.1\nName: app\nVersion: {version}\n"
            (site / f"app-{version}.dist-info" / "METADATA").write_text(metadata)

    text = cell(index, f"%python={own}\n%packages='app>=2'")
    install("2.0")
    assert [shown(jobs.run(text)) for _ in range(2)] == ["below 2.0\n"] * 2
    assert len(environments(jobs)) == 1
    install(later)
    assert shown(jobs.run(text)) == "2.0\n"
    install("2.0")
    index.asked.clear()
    assert shown(jobs.run(text)) == "below 2.0\n"
    assert not index.asked, "the first environment fits again"


@pytest.fixture
def smaller(tmp_path: Path) -> Path:
    """An environment that has tensorflow-cpu 2.21.0, whose module is tensorflow."""
    own = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    (site,) = own.glob("lib/*/site-packages")
    (site / "tensorflow").mkdir()
    (site / "tensorflow" / "__init__.py").write_text("version = 'the smaller one'\n")
    told = site / "tensorflow_cpu-2.21.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow_cpu\nVersion: 2.21.0\n")
    return own


@pytest.mark.parametrize(
    ("wish", "shows"),
    [
        ("app", "the smaller one ['tensorflow_cpu']"),
        ("app tensorflow", "2.21.0 ['tensorflow', 'tensorflow_cpu']"),  # asked for by name
        ("older", "2.20.0 ['tensorflow', 'tensorflow_cpu']"),  # it does not fit
    ],
)
def test_a_package_for_tensorflow_takes_the_smaller_one_that_is_there(
    jobs: Place, index: Index, smaller: Path, wish: str, shows: str
) -> None:
    index.add("app", "1.0", "tensorflow<2.22,>=2.21")
    index.add("older", "1.0", "tensorflow<2.21")
    for version in ("2.20.0", "2.21.0"):
        index.add("tensorflow", version)
    code = (
        "import tensorflow\nfrom importlib.metadata import distributions\n"
        "names = {one.metadata['Name'] for one in distributions()}\n"
        "print(tensorflow.version, sorted(name for name in names if 'tensorflow' in name))\n"
    )

    ended = jobs.run(cell(index, f"%python={smaller}\n%packages={wish}", code))

    assert shown(ended) == f"{shows}\n"


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ("%packages=nobody-has-it", "No matching distribution found for nobody-has-it"),
        ("%packages=--pre", "is an option of pip"),
        ("%requirements=gone.txt", "gone.txt cannot be read"),
    ],
)
def test_what_cannot_be_had_is_one_error(jobs: Place, index: Index, wish: str, says: str) -> None:
    ended = jobs.run(cell(index, wish))

    assert isinstance(ended.error, UsageError)
    assert says in ended.error.message
    assert not jobs.leftovers()
    assert not environments(jobs)


@pytest.fixture
def too_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's pip refuses the Python of the replicas, as pip 26 refuses Python 3.8."""
    kernel = tmp_path / "kernel"
    said = "This version of pip does not support python 3.8 (requires >=3.10)."
    kernel.write_text(f"#!/bin/sh\necho '{said}'\nexit 1\n")
    kernel.chmod(0o755)
    monkeypatch.setattr(environment, "sys", SimpleNamespace(executable=str(kernel)))


@pytest.mark.usefixtures("too_new")
def test_a_pip_that_is_too_new_is_replaced_by_that_of_the_interpreter(
    jobs: Place, index: Index
) -> None:
    index.add("app", "1.0")

    ended = jobs.run(cell(index, f"%python={sys.executable}\n%packages=app"))

    assert shown(ended) == "1.0\n"
    assert "does not support" not in ended.display.notices
    last = [event for event in ended.display.events if isinstance(event, Progress)][-1]
    assert last.unit is Unit.PACKAGES  # which only a line of pip tells


@pytest.mark.usefixtures("too_new")
@pytest.mark.parametrize("own", ["", "22.2.2"])
def test_a_pip_that_is_too_new_is_told(jobs: Place, index: Index, tmp_path: Path, own: str) -> None:
    python = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    if own:
        (site,) = python.glob("lib/*/site-packages")
        (site / f"pip-{own}.dist-info").mkdir()
        (site / f"pip-{own}.dist-info" / "METADATA").write_text(f"Name: pip\nVersion: {own}\n")

    ended = jobs.run(cell(index, f"%python={python}\n%packages=app"))

    assert isinstance(ended.error, EnvironmentFault)
    assert "pip is too new for Python 3.8" in ended.error.message
    assert "leave %packages out" in ended.error.hint
    assert not environments(jobs)


def test_what_is_no_python_is_told(jobs: Place, index: Index) -> None:
    ended = jobs.run(cell(index, "%packages=app\n%python=/bin/echo"))

    assert isinstance(ended.error, EnvironmentFault)
    assert "/bin/echo does not answer like Python" in ended.error.message
    assert not jobs.leftovers()


def test_an_interrupt_ends_pip_and_leaves_nothing(jobs: Place, index: Index) -> None:
    index.add("app", "1.0")
    index.stall.clear()

    async def main() -> None:
        session, display = jobs.session(), Recorder()
        first = asyncio.ensure_future(jobs.ended(cell(index, "%packages=app"), session, display))
        await wait(index.stalled.is_set)
        second = Recorder()
        other = asyncio.ensure_future(jobs.ended(cell(index, "%packages=app"), session, second))
        await wait(lambda: "waiting for it" in second.notices)
        assert jobs.alive()
        await interrupted(first)
        # The other one has its turn, and nothing of the first is in its way.
        index.stall.set()
        assert shown(await other) == "1.0\n"
        await session.close()

    asyncio.run(main())
    assert len(environments(jobs)) == 1
    assert len(jobs.leftovers()) == 1


def test_an_interrupt_while_another_installs(jobs: Place, index: Index) -> None:
    index.add("app", "1.0")
    index.stall.clear()

    async def main() -> None:
        session, display, second = jobs.session(), Recorder(), Recorder()
        first = asyncio.ensure_future(jobs.ended(cell(index, "%packages=app"), session, display))
        await wait(index.stalled.is_set)
        other = asyncio.ensure_future(jobs.ended(cell(index, "%packages=app"), session, second))
        await wait(lambda: "waiting for it" in second.notices)
        await interrupted(other)
        await interrupted(first)
        await wait(lambda: not jobs.alive())

    asyncio.run(main())
    assert not environments(jobs)
    assert not jobs.leftovers()


@pytest.mark.second("packages")
def test_an_installation_that_was_killed_is_done_anew(jobs: Place, index: Index) -> None:
    index.add("app", "1.0")
    index.stall.clear()

    async def main() -> Ended:
        session, display = jobs.session(), Recorder()
        work = asyncio.ensure_future(jobs.ended(cell(index, "%packages=app"), session, display))
        await wait(index.stalled.is_set)
        for pid in jobs.alive():
            os.kill(pid, signal.SIGKILL)
        return await work

    assert isinstance(asyncio.run(main()).error, SourceError)
    index.stall.set()
    assert shown(jobs.run(cell(index, "%packages=app"))) == "1.0\n"


@pytest.mark.second("packages")
def test_environments_go_that_no_cell_has_used_and_no_job_runs(jobs: Place, index: Index) -> None:
    for version in ("1.0", "2.0", "3.0"):
        index.add("app", version)
    folder = jobs.storage / "cache" / "environments"

    def age() -> None:
        for done in folder.glob("*/ciao-done"):
            os.utime(done, (1, 1))

    async def main() -> None:
        session, display = jobs.session(), Recorder()
        waits = "import app, time\nprint('runs', flush=True)\ntime.sleep(600)"
        text = cell(index, "%packages=app==1.0", waits)
        running = asyncio.ensure_future(jobs.ended(text, session, display))
        await display.until("runs")
        age()
        # It is in use, whatever its age; the next is not.
        await jobs.ended(cell(index, "%packages=app==2.0"), session, Recorder())
        assert len(environments(jobs)) == 2
        await interrupted(running)
        await session.close()

    asyncio.run(main())
    age()
    assert shown(jobs.run(cell(index, "%packages=app==2.0"))) == "2.0\n"  # used now
    assert shown(jobs.run(cell(index, "%packages=app==3.0"))) == "3.0\n"
    assert len(environments(jobs)) == 2
    index.asked.clear()
    assert shown(jobs.run(cell(index, "%packages=app==2.0"))) == "2.0\n"
    assert not index.asked
    assert not list(folder.glob("*.gone"))
