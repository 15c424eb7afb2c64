"""Job cells within a plain cell: of a notebook that it runs, of the history, of code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.kernels import JOB, SILENT, STAYS_UNTIL_THE_JOB_IS_OVER, WAIT, Kernel, Place

CELL = JOB + "import os\nprint(os.environ['CIAO_REPLICA'], 'trains')\n"


@pytest.fixture
def kernel(shared: Kernel) -> Kernel:
    return shared


def write_notebook(place: Place, *sources: str) -> None:
    cells = [
        {"cell_type": "code", "source": one, "metadata": {}, "outputs": [], "execution_count": None}
        for one in sources
    ]
    book: dict[str, Any] = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (place.work / "inner.ipynb").write_text(json.dumps(book))


def trained(text: str) -> bool:
    return all(f"{one} trains" in text for one in ("worker-0", "worker-1"))


def test_of_a_notebook(kernel: Kernel) -> None:
    write_notebook(kernel.place, "print('before')", CELL, "print('after', _job.name, steps := 3)")
    request = kernel.run("%run inner.ipynb")
    assert request.status == "ok"
    assert trained(request.text)
    (folder,) = kernel.place.job_folders()
    assert request.text.index("before") < request.text.index(f"after {folder.name} 3")
    assert kernel.run("print(steps)").text == "3\n"


def test_a_notebook_ends_at_a_job_that_fails(kernel: Kernel) -> None:
    write_notebook(kernel.place, JOB + "1 / 0\n", "print('after')")
    request = kernel.run("%run inner.ipynb")
    assert "JobFailed" in str(request.of("error"))
    assert "after" not in request.text


def test_of_code(kernel: Kernel) -> None:
    request = kernel.run(f"done = get_ipython().run_cell({CELL!r}); print(done.success)")
    assert trained(request.text)
    assert request.text.endswith("True\n")
    assert "SUCCEEDED" in kernel.run("get_ipython().run_cell('%ciao jobs')").text.upper()


def test_of_the_history(kernel: Kernel) -> None:
    number = kernel.run(CELL).reply["content"]["execution_count"]
    assert trained(kernel.run(f"%rerun {number}").text)


def test_of_a_macro(kernel: Kernel) -> None:
    number = kernel.run(CELL).reply["content"]["execution_count"]
    assert kernel.run(f"%macro -q again {number}").status == "ok"
    assert trained(kernel.run("again").text)
    plain = kernel.run("print('plain')").reply["content"]["execution_count"]
    assert kernel.run(f"%macro -q other {plain}").status == "ok"
    assert kernel.run("other").text == "plain\n"


@pytest.mark.parametrize("cell", ["%%ciao\n" + CELL, "%ciao jobs"])
def test_of_a_macro_of_a_command(kernel: Kernel, cell: str) -> None:
    done = kernel.run(cell)
    number = done.reply["content"]["execution_count"]
    assert kernel.run(f"%macro -q again {number}").status == "ok"
    request = kernel.run("again")
    assert request.status == "ok"
    assert trained(request.text) if cell.startswith("%%ciao") else request.text == done.text


def test_a_plain_cell_is_scanned_once(kernel: Kernel) -> None:
    kernel.run(
        "from ciao_kernel.jupyter import cells as _cells\n"
        "_scan, _scanned = _cells.scan_job, []\n"
        "def _counted(code):\n    _scanned.append(code)\n    return _scan(code)\n"
        "_cells.scan_job = _counted\n"
    )
    try:
        for cell in ("print(7 % 4)", "print(7 % 4)\n"):
            assert kernel.run(cell).text == "3\n"
        assert kernel.run("print(sum(one.startswith('print(7') for one in _scanned))").text == "2\n"
        inner = kernel.run(f"print(7 % 4)\nget_ipython().run_cell({CELL!r})")
        assert trained(inner.text)
    finally:
        kernel.run("_cells.scan_job = _scan")


def test_a_question_about_a_directive_is_no_job(kernel: Kernel) -> None:
    write_notebook(kernel.place, "%worker?", "print('after')")
    request = kernel.run("%run inner.ipynb")
    assert request.status == "ok"
    assert "%worker" in request.text
    assert "after" in request.text


def test_warm_replicas_of_the_notebook_are_not_those_of_an_inner_cell(
    start_kernel: Callable[..., Kernel],
) -> None:
    kernel = start_kernel("ciao")
    cell = "%framework=python\n%worker=1\n%warm\n%name=warm\nprint('up')"
    assert "up" in kernel.run(cell).text
    request = kernel.run(f"get_ipython().run_cell({cell!r})")
    (error,) = request.of("error")
    assert "the warm replicas of warm belong to a cell that ran in another way" in error["evalue"]
    assert "up" in kernel.run(cell).text


def test_an_error_names_the_line_of_the_inner_cell(kernel: Kernel) -> None:
    request = kernel.run(f"get_ipython().run_cell({'# mine' + chr(10) + JOB + '%cpu=much'!r})")
    (error,) = request.of("error")
    assert error["ename"] == "DirectiveError"
    assert "line 4: %cpu=much" in "\n".join(error["traceback"])


def test_an_interrupt_stops_it(kernel: Kernel) -> None:
    request = kernel.execute(f"get_ipython().run_cell({SILENT!r}); print('behind it')")
    kernel.wait(lambda: request.text.count("ready") == 2, "both replicas")
    kernel.interrupt()
    kernel.finish(request)
    kernel.place.wait_empty(WAIT)
    assert "KeyboardInterrupt" in str(request.of("error"))


def test_idle_warm_replicas_of_it_are_told_of_the_end_of_the_kernel(
    start_kernel: Callable[..., Kernel], place: Place
) -> None:
    kernel = start_kernel("ciao")
    kernel.be_patient()
    cell = "%framework=python\n%worker=2\n%warm\n%name=warm\nprint('up')"
    assert "up" in kernel.run(f"get_ipython().run_cell({cell!r})").text
    assert kernel.run(STAYS_UNTIL_THE_JOB_IS_OVER).status == "ok"
    kernel.shutdown()
    place.wait_empty()
    assert place.judged() == {"warm": "Succeeded"}
