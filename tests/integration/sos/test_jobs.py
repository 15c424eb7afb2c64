"""Job cells in a SoS notebook: what they show, what stops them, what dies."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.kernels import JOB, SILENT

FAILED = "KernelDied"


@pytest.fixture
def lasting(shared: Any) -> Any:
    """The file's kernel, for what leaves it as it was; the next cell is Ciao's."""
    shared.ok("%use Ciao")
    return shared


def test_a_job_shows_its_lines_and_its_table(lasting: Any) -> None:
    done = lasting.ok(JOB + "print('here', flush=True)")
    assert done.text.count("here\n") == 2
    assert "Succeeded" in done.tables[-1]
    assert "6" in lasting.ok("print(2 * 3)").text


def test_a_job_that_fails_fails_the_cell_with_its_line(lasting: Any) -> None:
    done = lasting.run("%use Ciao\n" + JOB + "\n1 / 0")
    assert done.error == "JobFailed"
    assert "Cell, line 4" in "\n".join(done.reply["content"]["traceback"])


def test_a_mistake_in_the_header_is_shown_and_nothing_starts(lasting: Any) -> None:
    before = lasting.place.job_folders()
    done = lasting.run("%framework=tensorflow\n%wroker=2\nprint()")
    assert done.error == "DirectiveError"
    assert lasting.place.job_folders() == before


def test_the_stop_button_stops_the_job(lasting: Any, figure: Callable[[str], None]) -> None:
    lasting.ok("kept = 1")
    running = lasting.execute(SILENT)
    lasting.wait_running(running, lasting.place)
    started = time.monotonic()
    lasting.interrupt()
    lasting.finish(running)
    figure(f"stopped in {time.monotonic() - started:.2f} s")
    assert running.error == "KeyboardInterrupt"
    lasting.place.wait_empty()
    assert "kept 1" in lasting.ok("print('kept', kept)").text


def test_silent_and_unkept_cells_start_nothing(lasting: Any) -> None:
    before = lasting.place.job_folders()
    probe = lasting.run(JOB + "print('here')", silent=True)
    assert probe.status == "error"
    probe = lasting.run(JOB + "print('here')", store_history=False)
    assert probe.error == "UsageError"
    assert lasting.place.job_folders() == before


def test_the_magics_start_nothing(lasting: Any) -> None:
    """Also where what they are to look at is the text of a job."""
    before = lasting.place.job_folders()
    lasting.ok(f"cell = {JOB + 'print()'!r}")
    for code in ("%preview cell", "%put cell", "%sessioninfo", "%use SoS", "%get cell --from Ciao"):
        lasting.ok(code)
    lasting.ok("%use Ciao\n%get cell")
    lasting.ok("%expand --in Ciao\nprint('''{cell}''')")
    assert lasting.place.job_folders() == before


@pytest.mark.second("gateway")
def test_a_job_of_which_the_kernel_is_killed_ends_the_cell_with_an_error(
    sos: Any, place: Any, figure: Callable[[str], None]
) -> None:
    running = sos.execute(SILENT)
    sos.wait_running(running, place)

    started = time.monotonic()
    sos.kill_ciao()
    sos.finish(running)

    figure(f"error after {time.monotonic() - started:.2f} s")
    assert running.error == FAILED
    assert "the kernel Ciao died" in running.reply["content"]["evalue"]
    place.wait_empty()
    assert "again 2" in sos.ok("print('again', 1 + 1)").text
    assert "here" in sos.ok(JOB + "print('here')").text


def test_a_cell_that_ends_its_kernel_ends_with_an_error(sos: Any) -> None:
    assert sos.run("import os; os._exit(3)").error == FAILED
    assert "SoS lives" in sos.ok("%use SoS\nprint('SoS lives')").text


@pytest.mark.second("gateway")
def test_a_dead_kernel_holds_nothing_up(sos: Any) -> None:
    """Tab and the magics ask it too, before a cell has started it again."""
    for code in ("%put n", "%preview n", "%sessioninfo", "%expand --in Ciao\nprint('{n}')"):
        sos.ok("n = 1")
        sos.kill_ciao()
        assert sos.run(code).reply
    sos.ok("n = 1")
    sos.kill_ciao()
    reply = sos.ask("complete_request", {"code": "pri", "cursor_pos": 3})
    assert reply["status"] in ("ok", "error")


@pytest.mark.slow
def test_the_first_cell_of_a_kernel_shows_its_output(lasting: Any) -> None:
    for number in range(4):
        # So large that the reply overtakes it.
        done = lasting.ok(f"%use Other{number} -k ciao -l Ciao\nprint('x' * 8_000_000)")
        assert len(done.text) == 8_000_001
        lasting.ok("%use SoS")
        lasting.ok(f"%shutdown Other{number}")


@pytest.mark.second("gateway")
@pytest.mark.slow
def test_a_kernel_starts_again_each_time(sos: Any) -> None:
    for _ in range(5):
        sos.kill_ciao()
        done = sos.ok("print('again')")
        assert done.text.count("again\n") == 1
    sos.ok("x = 1")
    # Of what other kernels said meanwhile nothing comes twice.
    assert sos.ok("%use SoS\nprint('between')").text.count("again") == 0
    assert sos.ok("%use Ciao\nprint('x', x)").text == "x 1\n"


@pytest.mark.second("gateway", only="restart")
@pytest.mark.parametrize("end", ["shutdown", "restart"])
def test_the_end_of_sos_ends_a_local_job(sos: Any, place: Any, end: str) -> None:
    running = sos.execute(SILENT)
    sos.wait_running(running, place)
    getattr(sos, end)()
    place.wait_empty()


def test_sos_that_is_killed_takes_its_local_job_along(sos: Any, place: Any) -> None:
    running = sos.execute(SILENT)
    sos.wait_running(running, place)
    sos.kill()
    place.wait_empty()


def test_ciao_itself_imports_nothing_of_sos() -> None:
    code = (
        "import sys, ciao_kernel.cli, ciao_kernel.jupyter.sos.kernel_side\n"
        "from ciao_kernel.jupyter import extension, kernel\nsys.exit('sos' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
