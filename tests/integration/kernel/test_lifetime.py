"""What becomes of a job when its kernel is shut down, restarted or killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.helpers.kernels import JOB, SILENT, WAIT, Kernel, Place, Request

Start = Callable[..., Kernel]
Figure = Callable[[str], None]

LEAVE = {"CIAO_ON_SHUTDOWN": "leave"}
MODES = ["ciao-message", "ciao-signal"]
ENDS: dict[str, Callable[[Kernel], None]] = {
    "shutdown": Kernel.shutdown,
    "shutdown-now": lambda kernel: kernel.shutdown(now=True),
    "restart": Kernel.restart,
    "restart-now": lambda kernel: kernel.restart(now=True),
}

BOTH = pytest.mark.parametrize(
    ("name", "end"),
    [
        *((name, end) for name in MODES for end in ("shutdown", "restart")),
        *(("ciao-message", end) for end in ("shutdown-now", "restart-now")),
    ],
)

# As torchrun does: the training process is a grandchild in a session of its own, and both
# take SIGTERM lightly.
GRANDCHILD = (
    JOB
    + f"""\
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(600)"
)
subprocess.Popen([{sys.executable!r}, "-c", code], start_new_session=True)
time.sleep(600)
"""
)


def running(kernel: Kernel, place: Place, code: str = SILENT) -> Request:
    request = kernel.execute(code)
    kernel.wait_running(request, place)
    return request


# --------------------------------------------------------------------- by default: it ends


@pytest.mark.second("trials", only="signal")
@pytest.mark.second("trials", only="now")
@BOTH
def test_job_ends_with_its_kernel(
    start_kernel: Start, place: Place, figure: Figure, name: str, end: str
) -> None:
    kernel = start_kernel(name)
    running(kernel, place)
    ENDS[end](kernel)
    figure(f"{place.wait_empty():.2f} s until no process is left")
    if "restart" in end:
        assert "Stopped" in kernel.run("%ciao jobs").text
        assert kernel.run(JOB + "print('again')").status == "ok"


def test_detached_job_outlives_its_kernel(start_kernel: Start, place: Place) -> None:
    kernel = start_kernel()
    kernel.run(SILENT.replace(JOB, JOB + "%name=far\n%detach\n"))
    process = kernel.process
    kernel.shutdown()
    process.wait(WAIT)
    assert list(place.judged().values()) == ["Running"]
    assert len(place.replicas()) == 2
    other = start_kernel()
    request = other.execute("%ciao attach far")
    other.wait_running(request, place)
    assert "far" in start_kernel().run("%ciao delete far").text
    place.wait_empty()
    assert other.finish(request).error in ("JobStopped", "NoSuchJob")


DELETES = """
import os, signal, threading, time
from ciao_kernel.jupyter import shutdown
shutdown.MAX_SHUTDOWN_DELAY = 600.0
def delete():
    with shutdown.lifetime.delay_shutdown():
        held.set()
        while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL: time.sleep(.02)
        open("begun", "w").close()
        while not os.path.exists("go-on"): time.sleep(.02)
        open("deleted", "w").close()
held = threading.Event()
threading.Thread(target=delete, daemon=True).start()
held.wait()
"""


def test_sigterm_does_not_cut_the_deletions_of_a_shutdown_short(
    kernel: Kernel, place: Place
) -> None:
    """jupyter_client sends it after half of the time that it gives the kernel."""
    kernel.run(DELETES)
    kernel.send("shutdown_request", {"restart": False}, control=True)
    kernel.wait((place.work / "begun").exists, "the shutdown to wait")
    kernel.process.terminate()
    kernel.take(0.1)
    (place.work / "go-on").touch()
    kernel.process.wait(WAIT)
    assert (place.work / "deleted").exists()


# ------------------------------------------------------------------ CIAO_ON_SHUTDOWN=leave


@pytest.mark.second("trials", only="message")
@pytest.mark.second("trials", only="restart")
@BOTH
def test_job_survives_where_it_shall(
    start_kernel: Start, place: Place, name: str, end: str
) -> None:
    """Every shutdown begins with an interrupt, and must not be taken for the stop button."""
    kernel = start_kernel(name, LEAVE)
    running(kernel, place, SILENT.replace(JOB, JOB + "%name=mine\n"))
    process = kernel.process
    ENDS[end](kernel)
    process.wait(WAIT)  # Nobody else would stop the job.
    if "shutdown" in end:
        kernel = start_kernel(name)
    assert list(place.judged().values()) == ["Running"]
    assert len(place.replicas()) == 2, "the job went with its kernel"
    assert "mine" in kernel.run("%ciao jobs").text
    request = kernel.execute("%ciao attach mine")
    kernel.wait_running(request, place)
    kernel.interrupt()
    assert kernel.finish(request).error == "KeyboardInterrupt"
    assert len(place.replicas()) == 2
    kernel.run("%ciao delete mine")
    place.wait_empty()


@pytest.mark.second("trials", only="message")
@pytest.mark.parametrize("name", MODES)
def test_stop_button_ends_it_even_so(
    start_kernel: Start, place: Place, figure: Figure, name: str
) -> None:
    kernel = start_kernel(name, LEAVE)
    for _ in range(2):
        request = running(kernel, place)
        started = time.monotonic()
        kernel.interrupt()
        kernel.finish(request)
        replied = time.monotonic() - started
        assert request.error == "KeyboardInterrupt"
        assert kernel.run("1").status == "ok"
        place.wait_empty()
        ended = time.monotonic() - started
        assert ended > 0.5, "a shutdown that comes so much later would find the job gone"
        figure(f"reply after {replied * 1000:.0f} ms, job ended after {ended:.2f} s")


def test_kill_leaves_it(start_kernel: Start, place: Place) -> None:
    kernel = start_kernel("ciao", LEAVE)
    running(kernel, place)
    kernel.kill()
    kernel.process.wait(WAIT)
    assert list(place.judged().values()) == ["Running"]
    assert len(place.replicas()) == 2


# --------------------------------------------------------------------------------- kill -9


@pytest.mark.second("trials", only="plain")
@pytest.mark.parametrize("code", [SILENT, GRANDCHILD], ids=["plain", "grandchildren"])
def test_killed_kernel_leaves_no_training_process(
    start_kernel: Start, place: Place, figure: Figure, code: str
) -> None:
    # With its kernel alive it would have ten minutes to end.
    kernel = start_kernel("ciao", {"CIAO_STOP_GRACE": "600"})
    running(kernel, place, code)
    assert len(place.replicas()) == (2 if code is SILENT else 4)
    kernel.kill()
    started = time.monotonic()
    while place.replicas():
        assert time.monotonic() - started < WAIT
        time.sleep(0.02)
    figure(f"{time.monotonic() - started:.2f} s until no training process is left")
    place.wait_empty()
    assert "Stopped" in start_kernel().run("%ciao jobs").text


@pytest.mark.second("trials")
def test_killed_kernel_between_cells(start_kernel: Start, place: Place) -> None:
    """A job of `%cleanPolicy=none` still runs when its cell is over."""
    kernel = start_kernel()
    code = "import os, time\nif os.environ['CIAO_REPLICA'] == 'worker-1': time.sleep(600)\n"
    kernel.run(JOB + "%cleanPolicy=none\n" + code)
    assert len(place.replicas()) == 1
    kernel.kill()
    place.wait_empty()


@pytest.mark.second("trials", only="plain")
@pytest.mark.parametrize("code", [SILENT, GRANDCHILD], ids=["plain", "grandchildren"])
def test_killed_supervisor_loses_the_job_and_nothing_runs_on(
    kernel: Kernel, place: Place, code: str
) -> None:
    request = running(kernel, place, code)
    (supervisor,) = place.supervisors()
    os.kill(supervisor.pid, signal.SIGKILL)
    kernel.finish(request)
    assert request.error == "JobLost"
    place.wait_empty()
    assert kernel.run(JOB + "print('again')").status == "ok"


def test_cell_is_told_when_someone_deletes_its_job(kernel: Kernel, place: Place) -> None:
    request = running(kernel, place)
    (folder,) = place.job_folders()
    other = kernel.client()
    os.kill(place.supervisors()[0].pid, signal.SIGTERM)
    kernel.finish(request)
    assert request.error == "JobStopped"
    other.run(f"%ciao delete {folder.name}")
    other.close()
    place.wait_empty()
    assert place.job_folders() == []


def test_a_fault_of_ciao_ends_the_cell(start_kernel: Start) -> None:
    """Without a reply a front-end would wait for ever."""
    kernel = start_kernel()
    assert kernel.run(
        "from ciao_kernel.jupyter import cells as ours; ours.scan_job = lambda code: 1 / 0"
    ).done
    request = kernel.run(JOB + "print(1)")
    assert request.error == "ZeroDivisionError"
    assert "a bug in the kernel" in request.of("error")[0]["traceback"][-1]
    assert kernel.run("print('alive')").text == "alive\n"
