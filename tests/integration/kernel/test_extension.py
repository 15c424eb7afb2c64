"""``%load_ext ciao_kernel``: the same cells and commands in any IPython."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.helpers.kernels import JOB, SILENT, STAYS_UNTIL_THE_JOB_IS_OVER, WAIT, Kernel, Place

Start = Callable[..., Kernel]

CELL = "%%ciao\n" + JOB


@pytest.fixture
def python3(start_kernel: Start) -> Kernel:
    """A plain IPython kernel with the extension."""
    kernel = start_kernel("python3")
    request = kernel.run("%load_ext ciao_kernel")
    assert (request.status, request.text) == ("ok", "")
    return kernel


@pytest.mark.stands_for("oldest")
def test_job_cell(lasting: Kernel) -> None:
    request = lasting.run(CELL + "print('hello from', __import__('os').environ['CIAO_REPLICA'])")
    assert request.status == "ok"
    for name in ("worker-0", "worker-1"):
        assert f"hello from {name}" in request.text
    assert len(request.of("display_data")) == 1
    assert "Succeeded" in request.tables[-1]
    assert lasting.run("print(_job.state)").text == "Succeeded\n"
    assert "Succeeded" in lasting.run("%ciao jobs").text
    assert lasting.strangers == []


@pytest.mark.stands_for("oldest")
def test_plain_cells_stay_plain(python3: Kernel) -> None:
    assert python3.run("1 + 1").of("execute_result")
    assert python3.run("%time 1").status == "ok"
    assert python3.run(JOB + "print(1)").status == "error", "%%ciao makes a job here"
    errors = []
    for code in ("1 / 0", "get_ipython().set_custom_exc((ZeroDivisionError,), None)", "1 / 0"):
        errors.append(python3.run(code).error)
    assert errors[0] == errors[-1] == "ZeroDivisionError"


@pytest.mark.stands_for("oldest")
@pytest.mark.parametrize(
    ("code", "error", "sentence"),
    [
        ("%%ciao\n%framework=tensorflow\n%wrker=2\nprint(1)", "DirectiveError", "%worker"),
        ("%%ciao\n%framework=tensorflow\n%worker=2\nprint(", "SourceError", "line 4"),
        ("%%ciao here\n" + JOB + "print(1)", "UsageError", "takes no arguments"),
        ("%%ciao jobs\nprint(1)", "UsageError", "A command has one %, as in %ciao jobs."),
        ("%ciao attach nothing", "NoSuchJob", "nothing"),
        ("%ciao no-such-verb", "UsageError", "no-such-verb"),
        ("%ciao config color=loud", "SettingError", "color"),
        (CELL + "raise ValueError('boom')", "JobFailed", "ValueError: boom"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_errors_are_sentences(lasting: Kernel, code: str, error: str, sentence: str) -> None:
    request = lasting.run(code)
    assert request.error == error
    (shown,) = request.of("error")
    text = "\n".join(shown["traceback"])
    assert sentence in text
    assert shown["ename"] == error
    assert "ciao_kernel" not in text
    assert "extension.py" not in text
    assert text.count("Traceback") <= 1
    assert "%tb" not in text


def test_errors_where_the_user_shows_own_ones(python3: Kernel) -> None:
    """IPython holds one handler for special exceptions; it stays the user's."""
    python3.run(
        "def show(shell, kind, value, trace, tb_offset=None): print('mine', value)\n"
        "get_ipython().set_custom_exc((KeyError,), show)"
    )
    assert "mine 'k'" in python3.run("raise KeyError('k')").text
    text = "\n".join(python3.run("%ciao attach nothing").of("error")[0]["traceback"])
    assert "extension.py" not in text


@pytest.mark.stands_for("oldest")
def test_interrupt_stops_the_job(python3: Kernel, place: Place) -> None:
    for _ in range(3):
        request = python3.execute("%%ciao\n" + SILENT)
        python3.wait_running(request, place)
        python3.interrupt()
        python3.finish(request)
        assert request.error == "KeyboardInterrupt"
        python3.wait_text(request, "is stopped")
        assert python3.run("1 + 1").status == "ok"
        place.wait_empty()


@pytest.mark.second("faults")
def test_two_interrupts(python3: Kernel, place: Place) -> None:
    request = python3.execute("%%ciao\n" + SILENT)
    python3.wait_running(request, place)
    python3.interrupt()
    python3.interrupt()
    python3.finish(request)
    assert request.error == "KeyboardInterrupt"
    place.wait_empty()
    python3.take(0.5)
    assert python3.run("1 + 1").status == "ok"


@pytest.mark.second("faults")
def test_interrupt_leaves_an_attached_job(python3: Kernel, place: Place) -> None:
    python3.run("%%ciao\n" + SILENT.replace(JOB, JOB + "%name=far\n%detach\n"))
    request = python3.execute("%ciao attach far")
    python3.wait_running(request, place)
    python3.interrupt()
    assert python3.finish(request).error == "KeyboardInterrupt"
    assert len(place.replicas()) == 2
    python3.run("%ciao delete far")
    place.wait_empty()


@pytest.mark.second("faults")
def test_stop_button_where_jobs_outlive_kernels(start_kernel: Start, place: Place) -> None:
    kernel = start_kernel("python3", {"CIAO_ON_SHUTDOWN": "leave"})
    kernel.run("%load_ext ciao_kernel")
    request = kernel.execute("%%ciao\n" + SILENT)
    kernel.wait_running(request, place)
    kernel.interrupt()
    assert kernel.finish(request).error == "KeyboardInterrupt"
    place.wait_empty()
    request = kernel.execute("%%ciao\n" + SILENT)
    kernel.wait_running(request, place)
    process = kernel.process
    kernel.shutdown()
    process.wait(WAIT)
    assert "Running" in place.judged().values()
    assert len(place.replicas()) == 2


@pytest.mark.second("faults", only="kill")
@pytest.mark.stands_for("oldest", only="shutdown")
@pytest.mark.parametrize("end", ["shutdown", "kill"])
def test_job_ends_with_its_kernel(python3: Kernel, place: Place, end: str) -> None:
    request = python3.execute("%%ciao\n" + SILENT)
    python3.wait_running(request, place)
    getattr(python3, end)()
    place.wait_empty()


WARM = "%%ciao\n%framework=python\n%worker=2\n%warm\n%name=warm\nprint('up')"


def test_idle_warm_replicas_are_told_of_the_end_of_their_kernel(
    python3: Kernel, place: Place
) -> None:
    """Those of a cluster notice it by themselves only after minutes."""
    python3.be_patient()
    assert python3.run(WARM).status == "ok"
    assert python3.run(STAYS_UNTIL_THE_JOB_IS_OVER).status == "ok"
    python3.shutdown()
    place.wait_empty()
    assert place.judged() == {"warm": "Succeeded"}


@pytest.mark.stands_for("oldest")
def test_capture(lasting: Kernel) -> None:
    request = lasting.run("%%capture caught\n%ciao magics")
    assert request.text == ""
    assert "%framework" in lasting.run("print(caught.stdout)").text


@pytest.mark.stands_for("oldest")
def test_loading_twice(lasting: Kernel) -> None:
    assert lasting.run("%load_ext ciao_kernel").status == "ok"
    assert lasting.run("%reload_ext ciao_kernel").status == "ok"
    assert lasting.run(CELL + "pass").status == "ok"


# ------------------------------------------------------------------------------- terminal


def ipython(place: Place, code: str) -> subprocess.Popen[str]:
    """IPython in a terminal, without its greeting."""
    command = [sys.executable, "-m", "IPython", "--ext=ciao_kernel", "--colors=nocolor"]
    return subprocess.Popen(
        [*command, "--simple-prompt", "-c", code],
        env={**place.env, "PYTHONUNBUFFERED": "1"},
        cwd=place.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.stands_for("oldest")
def test_terminal(place: Place) -> None:
    output = ipython(place, CELL + "print('hello')").communicate(timeout=WAIT)[0]
    assert {"[worker-0] hello", "[worker-1] hello"} <= set(output.splitlines())
    assert output.count("Succeeded") == 3, "one table: the job and its two replicas"
    assert "Succeeded" in ipython(place, "%ciao jobs").communicate(timeout=WAIT)[0]


CLOSES = """
from ciao_kernel.backends.local.backend import LocalBackend

class Backend(LocalBackend):
    name = "mine"
    async def close(self):
        print("closed at the end", flush=True)
"""


def test_connections_are_closed_when_a_terminal_ends(place: Place) -> None:
    plugin = place.work / "plugin"
    (plugin / "mine-1.0.dist-info").mkdir(parents=True)
    (plugin / "mine_backend.py").write_text(CLOSES)
    (plugin / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (plugin / "mine-1.0.dist-info" / "entry_points.txt").write_text(
        "[ciao.backends]\nmine = mine_backend:Backend\n"
    )
    place.env["PYTHONPATH"] = f"{plugin}{os.pathsep}{place.env.get('PYTHONPATH', '')}"
    patient = "from ciao_kernel.jupyter import extension\nextension._CLOSE_TIMEOUT = 100\n"
    output = ipython(place, f"{patient}%ciao jobs\nprint('last')").communicate(timeout=WAIT)[0]
    assert output.splitlines()[-2:] == ["last", "closed at the end"]


@pytest.mark.second("faults")
def test_terminal_error(place: Place) -> None:
    output = ipython(place, "%ciao attach nothing").communicate(timeout=WAIT)[0]
    assert "NoSuchJob" in output
    assert "extension.py" not in output
    assert "\x1b" not in output, "colours in a pipe"


@pytest.mark.second("faults")
def test_terminal_interrupt(place: Place) -> None:
    process = ipython(place, "%%ciao\n" + SILENT)
    try:
        assert process.stdout
        said = ""
        while said.count("ready") < 2:
            line = process.stdout.readline()
            assert line, said
            said += line
        os.kill(process.pid, signal.SIGINT)
        output = process.communicate(timeout=WAIT)[0]
    finally:
        process.kill()
    assert "KeyboardInterrupt" in output
    place.wait_empty()


SHUTDOWN_BEHIND_AN_INTERRUPT = """
import asyncio, os, signal, threading, time
from ciao_kernel.jupyter import shutdown
from ciao_kernel.jupyter import extension

seen, drawing = [], threading.Event()

async def cell():
    try:
        while True:
            drawing.set()
            time.sleep(0.2)  # a large table is drawn
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        with shutdown.lifetime.delay_shutdown():
            await asyncio.sleep(0.2)
            seen.append("cleaned up")
        raise

class Kernel:
    def do_shutdown(self, restart):
        seen.append("ended")

kernel = Kernel()
extension._watch_shutdown(kernel)

def close_notebook():
    drawing.wait()
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.02)  # so soon jupyter_client asks for the end
    asyncio.run(kernel.do_shutdown(False))

closing = threading.Thread(target=close_notebook)
closing.start()
try:
    extension.run_blocking(cell())
except KeyboardInterrupt:
    closing.join()
    print(seen)
"""


def test_a_shutdown_does_not_overtake_the_clean_up() -> None:
    """The interrupt that begins it is heard only when the loop is done with what it does."""
    command = [sys.executable, "-c", SHUTDOWN_BEHIND_AN_INTERRUPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    assert done.stdout == "['cleaned up', 'ended']\n", done.stderr
