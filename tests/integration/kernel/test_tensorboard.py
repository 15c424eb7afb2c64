"""%tensorboard: a real TensorBoard beside a real kernel. One cell is that of docs/data.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers import tensorboard
from tests.helpers.event_writer import WRITER
from tests.helpers.kernels import WAIT, Kernel, Place, Request
from tests.integration.docs.blocks import ROOT, read

Start = Callable[..., Kernel]

WRITES = """
Events(os.environ["CIAO_LOGDIR"]).scalar("loss", 0.5, 1)
"""
WAITS = """
events = Events(os.environ["CIAO_LOGDIR"])
events.scalar("loss", 0.5, 1)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.05)
events.scalar("loss", 0.25, 2)
"""
HELD = 'while not os.path.exists("begin"):\n    time.sleep(0.05)\nevents ='
ADDRESS = re.compile(r"TensorBoard of (.*): (http://127\.0\.0\.1:\d+/)")
START = 240.0
"""Seconds for a cell that starts TensorBoard, which imports TensorFlow if there is one."""


pytestmark = tensorboard.needs_tensorboard


def job(name: str, code: str, workers: int = 1) -> str:
    header = f"%framework=python\n%worker={workers}\n%name={name}\n%tensorboard\n"
    return header + WRITER + code


def shown(request: Request) -> tuple[str, str]:
    """The jobs that a cell names, and the address of TensorBoard."""
    texts = [match for text in request.tables if (match := ADDRESS.fullmatch(text))]
    assert texts, [*request.tables, request.text]
    return texts[-1][1], texts[-1][2]


def boards(place: Place) -> list[psutil.Process]:
    """The processes of TensorBoard of this place."""
    inside = str(place.storage / "tensorboard")
    found = []
    for one in psutil.process_iter(["cmdline"]):
        if any(word.startswith(inside) for word in one.info["cmdline"] or ()):
            found.append(one)
    return found


def test_jobs_that_run_and_have_ended_are_runs_of_one_tensorboard(
    start_kernel: Start, place: Place
) -> None:
    kernel = start_kernel()
    first = kernel.run(job("first", WRITES, workers=2), START)
    assert first.status == "ok", first.text
    names, address = shown(first)
    assert names == "first"
    tensorboard.scalars(address, "first/worker-0", "first/worker-1", step=1)

    second = kernel.execute(job("second", WAITS))
    kernel.wait(lambda: any(map(ADDRESS.fullmatch, second.tables)), "the address", START)
    assert shown(second) == ("second, first", address)
    tensorboard.scalars(address, "second/worker-0", "first/worker-0", step=1)
    (place.storage / "jobs/second/work/go").touch()
    kernel.finish(second)
    tensorboard.scalars(address, "second/worker-0", step=2)
    assert len(boards(place)) == 1


@pytest.mark.second("faults", only="shutdown")
@pytest.mark.parametrize("end", [Kernel.kill, Kernel.shutdown], ids=["kill", "shutdown"])
def test_it_ends_with_its_kernel(
    start_kernel: Start, place: Place, end: Callable[[Kernel], None]
) -> None:
    kernel = start_kernel()
    assert kernel.run(job("mnist", WRITES), START).status == "ok"
    (board,) = boards(place)
    end(kernel)
    board.wait(WAIT)
    folder = place.storage / "tensorboard"
    assert not list(folder.iterdir())
    assert (place.storage / "jobs/mnist/work/logs/worker-0").is_dir()  # behind a link


@pytest.mark.second("faults")
def test_a_later_kernel_shows_jobs_of_an_earlier_one(start_kernel: Start, place: Place) -> None:
    earlier = start_kernel()
    assert earlier.run(job("one", WRITES), START).status == "ok"
    plain = job("two", WRITES.replace('os.environ["CIAO_LOGDIR"]', '"logs"'))
    assert earlier.run(plain.replace("%tensorboard\n", "")).status == "ok"
    earlier.shutdown()

    kernel = start_kernel()
    names, address = shown(kernel.run("%ciao tensorboard", START))
    assert names == "one"
    assert shown(kernel.run("%ciao tensorboard two")) == ("two, one", address)
    tensorboard.scalars(address, "one/worker-0", "two", step=1)
    none = kernel.run("%ciao tensorboard three")
    assert none.error == "NoSuchJob"


@pytest.mark.second("faults")
def test_a_detached_job_is_shown(start_kernel: Start, place: Place) -> None:
    kernel = start_kernel()
    request = kernel.run("%detach\n" + job("far", WAITS), START)
    _, address = shown(request)
    tensorboard.scalars(address, "far/worker-0", step=1)
    (place.storage / "jobs/far/work/go").touch()
    tensorboard.scalars(address, "far/worker-0", step=2)


def test_nothing_starts_without_tensorboard(start_kernel: Start, place: Place) -> None:
    kernel = start_kernel()
    kernel.run("import sys\nsys.modules['tensorboard'] = None")  # whatever this Python has
    request = kernel.run(job("mnist", WRITES))
    assert request.error == "EnvironmentFault"
    assert "%pip install tensorboard" in "\n".join(request.of("error")[-1]["traceback"])
    assert not place.job_folders()
    assert kernel.run("%ciao tensorboard").error == "EnvironmentFault"


@pytest.mark.second("faults")
def test_a_tensorboard_that_does_not_start_leaves_the_job_alone(
    start_kernel: Start, place: Place, tmp_path: Path
) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard/__init__.py").touch()
    (tmp_path / "tensorboard/program.py").write_text("raise ImportError('no setuptools here')\n")
    request = start_kernel(env={"PYTHONPATH": str(tmp_path)}).run(job("mnist", WRITES))
    assert request.status == "ok"
    assert "TensorBoard did not start: ImportError: no setuptools here." in request.text


@pytest.mark.second("gateway")
def test_a_page_behind_a_proxy_gets_a_frame(start_kernel: Start, place: Place) -> None:
    """But not before there is something to show: TensorBoard does not load its page again."""
    proxy = {"TENSORBOARD_PROXY_URL": '/user/"ada"/proxy/%PORT%/'}
    kernel = start_kernel(env=proxy)
    request = kernel.execute(job("mnist", WAITS.replace("events =", HELD, 1)))
    kernel.wait(lambda: any(map(ADDRESS.fullmatch, request.tables)), "the address", START)
    _, address = shown(request)
    assert not any("<iframe" in one for one in pages(request))
    (place.storage / "jobs/mnist/work/begin").touch()
    kernel.wait(lambda: "<iframe" in pages(request)[-1], "the frame", START)
    tensorboard.scalars(address, "mnist/worker-0", step=1)  # nothing is waited for: it is there
    port = address.removesuffix("/").rpartition(":")[2]
    assert f'<iframe src="/user/&quot;ada&quot;/proxy/{port}/"' in pages(request)[-1]
    (place.storage / "jobs/mnist/work/go").touch()
    assert kernel.finish(request).status == "ok"
    assert len({one["transient"]["display_id"] for one in boards_of(request)}) == 1


@pytest.mark.second("gateway")
def test_a_page_of_a_job_that_nobody_follows_has_its_frame_at_once(
    start_kernel: Start, place: Place
) -> None:
    kernel = start_kernel(env={"TENSORBOARD_PROXY_URL": "/proxy/%PORT%/"})
    code = job("far", WAITS.replace("events =", HELD, 1))
    detached = kernel.run(f"%detach\n{code}", START)
    asked = kernel.run("%ciao tensorboard far", START)
    for request in (detached, asked):
        assert request.status == "ok", request.text
        assert "<iframe" in pages(request)[-1]
    for name in ("begin", "go"):
        (place.storage / "jobs/far/work" / name).touch()
    tensorboard.scalars(shown(asked)[1], "far/worker-0", step=2)


def boards_of(request: Request) -> list[Any]:
    """The outputs with TensorBoard, and their changes."""
    every = [*request.of("display_data"), *request.of("update_display_data")]
    return [one for one in every if one["data"]["text/plain"].startswith("TensorBoard of ")]


def pages(request: Request) -> list[str]:
    return [str(one["data"]["text/html"]) for one in boards_of(request)]


@pytest.mark.second("gateway")
def test_a_kernel_behind_a_gateway_says_what_works(start_kernel: Start, place: Place) -> None:
    kernel = start_kernel(env={"KERNEL_USERNAME": "ada"})
    request = kernel.run(job("mnist", WRITES))
    assert request.status == "ok"
    assert "no browser reaches its ports" in request.text
    assert "%plot=loss draws curves in the cell." in request.text
    assert not boards(place)


def test_the_magic_of_tensorboard_stays_its_own(start_kernel: Start) -> None:
    kernel = start_kernel()
    request = kernel.run("%tensorboard --logdir runs")
    assert "UsageError" in request.text or "not found" in request.text  # it is not loaded
    assert kernel.run("%load_ext tensorboard").status == "ok"


@pytest.mark.second("faults")
def test_a_program_without_event_files_is_told_where_they_belong(start_kernel: Start) -> None:
    request = start_kernel().run(job("mnist", "\nprint('done')\n"), START)
    assert "the program wrote no event files into logs." in request.text


@pytest.mark.second("docs")
@pytest.mark.slow
def test_the_cell_of_the_documentation_is_shown(start_kernel: Start) -> None:
    (cell,) = (one.text for one in read(ROOT / "docs/data.md") if "\n%tensorboard\n" in one.text)
    request = start_kernel().run(cell, within=600)  # it imports TensorFlow, if there is one
    assert request.status == "ok", request.text
    _, address = shown(request)
    tensorboard.scalars(address, "first/worker-0", "first/worker-1", step=99)
