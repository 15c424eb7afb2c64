"""The stop button, in both modes and in every phase of a cell."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.kernels import JOB, SILENT, WAIT, Kernel, Place, Request
from tests.helpers.subshells import add_subshell, execute

Figure = Callable[[str], None]

MODES = ["ciao-message", "ciao-signal"]

STUBBORN = JOB + (
    "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\nwhile not os.path.exists('go-on'): time.sleep(.02)\n"
)
"""Heeds no SIGTERM until the test lets it end."""
SAVING = JOB + (
    "import os, signal, sys, time\n"
    "def save(*_):\n"
    "    while not os.path.exists('go-on'): time.sleep(.02)\n"
    "    print('saved at step 812', flush=True)\n"
    "    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\n"
    "print('ready', flush=True)\nwhile True: time.sleep(1)\n"
)
LOUD = JOB + "%lines=all\nwhile True: print('x' * 60)\n"


BY_MESSAGE = pytest.mark.parametrize("lasting", ["ciao-message"], indirect=True)
"""For what a signal cannot do: it reaches the main thread alone."""


@pytest.fixture(scope="module", params=MODES)
def lasting(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    """One kernel of each mode has to bear all that follows."""
    place = Place(tmp_path_factory.mktemp(request.param))
    kernel = Kernel(place, request.param, {"CIAO_STOP_GRACE": "600"})
    yield kernel
    kernel.shutdown(now=True)
    place.kill_all()


@pytest.fixture
def place(lasting: Kernel) -> Iterator[Place]:
    yield lasting.place
    lasting.place.kill_all()


@pytest.fixture
def kernel(lasting: Kernel, place: Place) -> Kernel:
    assert lasting.process.is_running(), "a test before ended the kernel"
    return lasting


def stop(kernel: Kernel, request: Request, times: int = 1) -> float:
    """Press stop; the cell must end as interrupted. Returns the seconds that it took.

    By itself no cell here ends before `kernel.wait` gives up.
    """
    started = time.monotonic()
    for _ in range(times):
        kernel.interrupt()
    kernel.wait(lambda: request.reply is not None, "reply after an interrupt")
    took = time.monotonic() - started
    assert (request.status, request.error) == ("error", "KeyboardInterrupt")
    kernel.finish(request)
    assert [error["ename"] for error in request.of("error")] == ["KeyboardInterrupt"]
    return took


def works(kernel: Kernel) -> None:
    """The next cell runs, and the kernel is the same process."""
    assert kernel.run("6 * 7").of("execute_result")[0]["data"]["text/plain"] == "42"
    assert kernel.process.is_running()


def go_on(place: Place) -> None:
    """Let replicas end that wait for it."""
    for work in place.storage.glob("jobs/*/work"):
        (work / "go-on").touch()


INTERRUPTED_BEFORE_ITS_CELL = """
import os, signal, sys
from ipykernel.kernelapp import IPKernelApp
from ciao_kernel.jupyter.kernel import CiaoKernel

class Kernel(CiaoKernel):
    cells = 0

    def get_parent(self, channel=None):
        parent = super().get_parent(channel)
        asks = sys._getframe(1).f_code.co_name == "pre_handler_hook"
        if asks and parent["header"]["msg_type"] == "execute_request":
            self.cells += 1
            if self.cells == 2:
                os.kill(os.getpid(), signal.SIGINT)
        return parent

IPKernelApp.launch_instance(kernel_class=Kernel)
"""


@pytest.mark.stands_for("oldest")
def test_an_interrupt_between_two_cells_stops_the_one_that_was_sent(tmp_path: Path) -> None:
    """In the moment in which the next cell comes; ipykernel's own handler would raise there."""
    place = Place(tmp_path)
    argv = [sys.executable, "-c", INTERRUPTED_BEFORE_ITS_CELL, "-f", "{connection_file}"]
    place.add_spec("between", {"argv": argv, "display_name": "Ciao", "language": "python"})
    kernel = Kernel(place, "between")
    try:
        kernel.run("kept = 1")
        assert kernel.run("pass").error == "KeyboardInterrupt"
        assert kernel.run("kept").of("execute_result")
    finally:
        kernel.shutdown(now=True)


# ------------------------------------------------------------------------------ job cells


def wait_loud(kernel: Kernel, request: Request) -> None:
    """Both replicas pour out lines, most of which the cell leaves out."""
    kernel.wait(lambda: all(f"[worker-{n}]" in request.text for n in (0, 1)), "lines")
    kernel.wait_text(request, "not shown here")


@pytest.mark.second("trials", only="signal-loud")
@pytest.mark.stands_for("oldest", only="silent")
@pytest.mark.parametrize("code", [SILENT, LOUD], ids=["silent", "loud"])
def test_running_job(kernel: Kernel, place: Place, figure: Figure, code: str) -> None:
    request = kernel.execute(code)
    if code is LOUD:
        wait_loud(kernel, request)
    else:
        kernel.wait_running(request, place)
    took = stop(kernel, request)
    works(kernel)
    figure(f"{took * 1000:.0f} ms to the reply, {place.wait_empty():.2f} s more to no process")
    kernel.wait_text(request, "is stopped; its files stay in")
    assert "Stopped" in kernel.run("%ciao jobs").text


@pytest.mark.second("trials")
def test_loud_job_ten_times_in_a_row(kernel: Kernel, place: Place, figure: Figure) -> None:
    before, took = len(place.job_folders()), []
    for _ in range(10):
        request = kernel.execute(LOUD)
        wait_loud(kernel, request)
        took.append(stop(kernel, request))
        works(kernel)
        place.wait_empty()
    figure(f"worst of ten {max(took) * 1000:.0f} ms")
    assert len(place.job_folders()) == before + 10


@pytest.mark.stands_for("oldest")
def test_right_behind_the_run_button(kernel: Kernel, place: Place) -> None:
    """The interrupt has a channel of its own, and comes before the cell that it is meant for.

    One long sleep would not do: Python misses a signal that comes after its last look and before
    the system call.
    """
    for code in (SILENT, "import time\nwhile True: time.sleep(.02)"):
        for _ in range(10):
            stop(kernel, kernel.execute(code))
            works(kernel)
    place.wait_empty()


@pytest.mark.stands_for("oldest")
def test_long_before_the_run_button(kernel: Kernel) -> None:
    """An interrupt while nothing runs is meant for no cell."""
    kernel.interrupt()
    kernel.let_interrupts_arrive()
    works(kernel)


@pytest.mark.second("trials", only="signal")
def test_before_the_replicas_start_and_while_they_start(
    kernel: Kernel, place: Place, figure: Figure
) -> None:
    """At 0, 10, 20 … ms after the cell began: no moment is special."""
    took = []
    for step in range(16):
        request = kernel.execute(SILENT)
        kernel.wait(lambda r=request: "execute_input" in r.events, "start of the cell")
        kernel.take(step * 0.01)
        took.append(stop(kernel, request))
        works(kernel)
        place.wait_empty()
    figure(f"worst of {len(took)} {max(took) * 1000:.0f} ms")


@pytest.mark.second("trials", only="signal")
def test_replica_that_ignores_sigterm(kernel: Kernel, place: Place, figure: Figure) -> None:
    """The cell ends though the job does not; tests/integration/local kills it after its grace."""
    request = kernel.execute(STUBBORN)
    kernel.wait_running(request, place)
    took = stop(kernel, request)
    assert "has not ended yet" in request.text
    assert len(place.replicas()) == 2
    works(kernel)
    go_on(place)
    figure(f"{took:.2f} s to the reply, {place.wait_empty():.2f} s more to no process")


@pytest.mark.second("trials", only="signal")
def test_what_a_replica_writes_while_it_ends_is_shown(
    kernel: Kernel, place: Place, figure: Figure
) -> None:
    """A checkpoint that is saved on SIGTERM takes longer than the cell."""
    request = kernel.execute(SAVING)
    kernel.wait_running(request, place)
    kernel.wait_text(request, "ready")
    figure(f"{stop(kernel, request):.2f} s to the reply")
    assert "saved at step 812" not in request.text
    go_on(place)
    works(kernel)
    kernel.wait_text(request, "is stopped; its files stay in")
    assert request.text.count("saved at step 812\n") == 2
    place.wait_empty()


@pytest.mark.second("trials", only="signal")
def test_while_the_job_is_stopping(kernel: Kernel, place: Place) -> None:
    """A second press while the first is being worked on, and presses behind the cell's end."""
    before = set(place.storage.glob("jobs/*/stop"))
    request = kernel.execute(STUBBORN)
    kernel.wait_running(request, place)
    kernel.interrupt()
    until = time.monotonic() + WAIT
    while not set(place.storage.glob("jobs/*/stop")) - before:
        assert time.monotonic() < until, "the first press does nothing"
        time.sleep(0.005)
    stop(kernel, request)
    assert "is stopping: " in request.text, "its end was waited for"
    for _ in range(3):
        kernel.interrupt()
    kernel.let_interrupts_arrive()
    works(kernel)
    go_on(place)
    place.wait_empty()


@pytest.mark.second("trials", only="signal")
@pytest.mark.parametrize("mode", MODES)
def test_while_a_failed_job_is_stopping(tmp_path: Path, mode: str) -> None:
    """worker-1 has failed and worker-0 takes its time to end: stop does not wait for it."""
    place = Place(tmp_path)
    kernel = Kernel(place, mode, {"CIAO_STOP_GRACE": "600"})
    try:
        request = kernel.execute(
            JOB + "import os, signal, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "print('ready', flush=True)\n"
            "open(os.environ['CIAO_REPLICA'], 'w').close()\n"
            "if os.environ['CIAO_REPLICA'] == 'worker-1':\n"
            "    while not os.path.exists('worker-0'): time.sleep(.02)\n"
            "    raise SystemExit(3)\n"
            "time.sleep(600)\n"
        )
        kernel.wait_text(request, "ready")
        kernel.wait(lambda: any("Failed" in table for table in request.tables), "failure")
        stop(kernel, request)
        works(kernel)
    finally:
        kernel.shutdown(now=True)
        place.kill_all()


@pytest.mark.second("trials", only="signal")
def test_twice_quickly(kernel: Kernel, place: Place) -> None:
    request = kernel.execute(SILENT)
    kernel.wait_running(request, place)
    stop(kernel, request, times=2)
    works(kernel)
    place.wait_empty()


@pytest.mark.stands_for("oldest")
def test_idle_kernel_lives(kernel: Kernel) -> None:
    works(kernel)
    for _ in range(10):
        kernel.interrupt()
        kernel.take(0.02)
    kernel.let_interrupts_arrive()
    works(kernel)
    kernel.run(JOB + "print('a job before')")
    for _ in range(3):
        kernel.interrupt()
    kernel.let_interrupts_arrive()
    works(kernel)


@pytest.mark.second("trials", only="logs")
@pytest.mark.second("trials", only="signal")
@pytest.mark.parametrize("command", ["%ciao attach long", "%ciao logs -f long"])
def test_following_leaves_the_job(kernel: Kernel, place: Place, command: str) -> None:
    kernel.run(SILENT.replace(JOB, JOB + "%name=long\n%detach\n"))
    for _ in range(2):
        request = kernel.execute(command)
        kernel.wait_running(request, place)
        stop(kernel, request)
        kernel.wait_text(request, "keeps running")
        works(kernel)
    assert place.judged()["long"] == "Running"
    assert len(place.replicas()) == 2
    kernel.run("%ciao delete long")
    place.wait_empty()


@pytest.mark.stands_for("oldest")
def test_queued_cells_are_aborted(kernel: Kernel, place: Place) -> None:
    first = kernel.execute(SILENT)
    second = kernel.execute("print('never')")
    kernel.wait_running(first, place)
    stop(kernel, first)
    assert kernel.finish(second).status == "aborted"
    works(kernel)
    place.wait_empty()


@pytest.mark.second("trials", only="signal")
def test_job_within_a_plain_cell(kernel: Kernel, place: Place) -> None:
    """`%ciao run` below other code blocks the cell as any magic does."""
    (place.work / "long.py").write_text(
        "#%framework=tensorflow\n#%worker=2\n" + SILENT.removeprefix(JOB)
    )
    request = kernel.execute("before = 1\n%ciao run long.py")
    kernel.wait_running(request, place)
    stop(kernel, request)
    works(kernel)
    place.wait_empty()


# ---------------------------------------------------------------------------- plain cells


@pytest.mark.stands_for("oldest")
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import asyncio\nprint('on', flush=True)\nawait asyncio.sleep(600)", "CancelledError"),
        ("import time\nprint('on', flush=True)\ntime.sleep(600)", "KeyboardInterrupt"),
        ("print('on', flush=True)\nwhile True: pass", "KeyboardInterrupt"),
        ("print('on', flush=True)\n!sleep 600", None),
    ],
    ids=["await", "sleep", "busy", "shell"],
)
def test_plain_cell(kernel: Kernel, figure: Figure, code: str, error: str | None) -> None:
    for _ in range(2):
        request = kernel.execute(code)
        kernel.wait_text(request, "on")
        kernel.take(0.2)
        started = time.monotonic()
        kernel.interrupt()
        kernel.wait(lambda r=request: r.reply is not None, "reply")
        took = time.monotonic() - started
        if error is not None:
            assert request.error == error
        kernel.finish(request)
        works(kernel)
    figure(f"{took * 1000:.0f} ms")


SWALLOWED = """
import gc, os, sys, time, weakref
class Thing: pass
def gone(*_):
    print("on", flush=True)
    time.sleep(600)
class Final:
    __del__ = gone
{}
print("went on", flush=True)
time.sleep(600)
"""


@pytest.mark.stands_for("oldest")
@pytest.mark.parametrize(
    "how",
    [
        "thing = Thing(); held = weakref.ref(thing, gone); del thing",
        "Final()",
        "a = Thing(); a.itself = a; held = weakref.ref(a, gone)\ndel a; gc.collect()",
    ],
    ids=["weakref", "finalizer", "collector"],
)
def test_an_interrupt_that_python_swallows(kernel: Kernel, how: str) -> None:
    """Python ignores what is raised in such a function; the cell must be interrupted even so."""
    for _ in range(2):
        request = kernel.execute(SWALLOWED.format(how))
        kernel.wait_text(request, "on")
        kernel.interrupt()
        kernel.finish(request)
        assert request.error == "KeyboardInterrupt"
        assert "ignored" not in request.text
        works(kernel)


@pytest.mark.stands_for("oldest")
def test_plain_cell_at_its_edges(kernel: Kernel) -> None:
    """Interrupts at any moment of very short cells: every cell gets its reply."""
    for step in range(40):
        request = kernel.execute("import math\nmath.factorial(2000)\n1 + 1")
        kernel.take(step * 0.0005)
        kernel.interrupt()
        kernel.finish(request)
        assert request.status in ("ok", "error")
    kernel.let_interrupts_arrive()
    works(kernel)


@pytest.mark.stands_for("oldest")
def test_after_the_user_had_signal_handlers(kernel: Kernel, place: Place) -> None:
    """`loop.add_signal_handler` takes away what wakes the loop; the next cell has it again."""
    kernel.run(
        "import asyncio, os, signal\nloop, got = asyncio.get_running_loop(), []\n"
        "loop.add_signal_handler(signal.SIGUSR1, got.append, 'it')"
    )
    kernel.run("os.kill(os.getpid(), signal.SIGUSR1); await asyncio.sleep(.1)")
    assert "it" in kernel.run("print(got)").text
    kernel.run("loop.remove_signal_handler(signal.SIGUSR1)")
    request = kernel.execute("print('on', flush=True)\nawait asyncio.sleep(600)")
    kernel.wait_text(request, "on")
    kernel.interrupt()
    kernel.finish(request)
    kernel.run("signal.signal(signal.SIGINT, signal.SIG_IGN)")
    request = kernel.execute(SILENT)
    kernel.wait_running(request, place)
    stop(kernel, request)


FORKS = """
import os, signal, threading, time
def fork():
    while not os.path.exists("fork"): time.sleep(.02)
    pid = os.fork()
    if not pid:
        try:
            open("forked", "w").write(str(os.getpid()) + "\\n")
            while True: time.sleep(.02)
        except KeyboardInterrupt:
            os._exit(7)
    _, status = os.waitpid(pid, 0)
    ends.append(os.waitstatus_to_exitcode(status))
ends, thread = [], threading.Thread(target=fork)
thread.start()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_signals_end_a_process_that_is_forked_during_a_job(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A thread of the user forks, as multiprocessing does: the cell's handlers are not for that."""
    place = Place(tmp_path)
    kernel = Kernel(place)
    forked: list[psutil.Process] = []
    try:
        kernel.run(FORKS)
        request = kernel.execute(SILENT)
        kernel.wait_running(request, place)
        file = place.work / "forked"
        (place.work / "fork").touch()
        kernel.wait(lambda: file.exists() and file.read_text().endswith("\n"), "the process")
        forked.append(psutil.Process(int(file.read_text())))
        forked[0].send_signal(number)
        kernel.wait(lambda: not forked[0].is_running(), "the end of the process")
        assert request.reply is None
        kernel.interrupt()
        kernel.finish(request)
        ends = kernel.run("thread.join(); print(ends)").text
        assert ends == ("[7]\n" if number is signal.SIGINT else f"[{-number}]\n")
    finally:
        for one in forked:
            with contextlib.suppress(psutil.Error):
                one.kill()
        kernel.shutdown(now=True)
        place.kill_all()


@pytest.mark.second("trials", only="signal")
def test_files_of_a_stopped_job_stay(kernel: Kernel, place: Place) -> None:
    code = "%name=files\nopen('kept.txt', 'w').write('x')\n" + SILENT.removeprefix(JOB)
    request = kernel.execute(JOB + code)
    kernel.wait_running(request, place)
    stop(kernel, request)
    assert (place.storage / "jobs" / "files" / "work" / "kept.txt").read_text() == "x"
    kernel.wait(
        lambda: request.tables[-1].startswith("files: Stopped ("), "the table that is saved"
    )
    kernel.run("%ciao delete files")


@pytest.mark.stands_for("oldest")
@BY_MESSAGE
def test_job_on_a_subshell_by_message(kernel: Kernel, place: Place) -> None:
    subshell = add_subshell(kernel)
    for _ in range(3):
        request = execute(kernel, SILENT, subshell)
        kernel.wait_running(request, place)
        works(kernel)  # The main shell is free meanwhile.
        stop(kernel, request)
        place.wait_empty()
    # One on each at once.
    request = execute(kernel, SILENT, subshell)
    main = kernel.execute(SILENT)
    kernel.wait_running(request, place)
    kernel.wait_running(main, place)
    assert len(place.replicas()) == 4
    stop(kernel, request)
    kernel.finish(main)
    assert main.error == "KeyboardInterrupt"
    works(kernel)


@BY_MESSAGE
def test_a_subshell_that_is_deleted_during_its_job(kernel: Kernel, place: Place) -> None:
    """The console is closed: nobody could follow or stop its job, which ends with its cell."""
    other, subshell = add_subshell(kernel), add_subshell(kernel)
    beside = execute(kernel, SILENT.replace(JOB, JOB + "%name=beside\n"), other)
    kernel.wait_running(beside, place)
    request = execute(kernel, SILENT.replace(JOB, JOB + "%name=left\n"), subshell)
    kernel.wait_running(request, place)
    kernel.ask("delete_subshell_request", {"subshell_id": subshell}, control=True)
    listed = kernel.ask("list_subshell_request", {}, control=True)["subshell_id"]
    assert subshell not in listed
    kernel.wait(lambda: bool(request.of("error")), "the end of its cell")
    assert request.of("error")[0]["ename"] == "KeyboardInterrupt"
    while place.judged()["left"] == "Running":
        kernel.take(0.02)
    assert place.judged()["beside"] == "Running"
    assert beside.reply is None
    stop(kernel, beside)
    for _ in range(2):
        plain = kernel.execute("import time\nprint('on', flush=True)\ntime.sleep(600)")
        kernel.wait_text(plain, "on")
        stop(kernel, plain)
    works(kernel)
    assert place.judged() == {**place.judged(), "left": "Stopped", "beside": "Stopped"}
    kernel.run("%ciao delete left beside")
    place.wait_empty()


@pytest.mark.second("trials")
def test_pressed_again_much_later(kernel: Kernel, place: Place) -> None:
    """Whatever swallowed the first interrupt, a later one is heard."""
    code = (
        "import asyncio, threading\n"
        "from ciao_kernel.session import session\n"
        "whole, pressed = session.Session.run, []\n"
        "async def deaf(self, *args, **options):\n"
        "    open('begun', 'w').close()\n"
        "    while len(pressed) < 2:\n"
        "        try:\n"
        "            await asyncio.sleep(60)\n"
        "        except asyncio.CancelledError:\n"
        "            pressed.append(1)\n"
        "    raise asyncio.CancelledError\n"
        "session.Session.run = deaf"
    )
    assert kernel.run(code).status == "ok"
    request = kernel.execute(SILENT)
    kernel.wait((place.work / "begun").exists, "the cell to begin")
    started = time.monotonic()
    while request.reply is None:
        assert time.monotonic() - started < WAIT
        kernel.interrupt()
        kernel.take(0.5)
    kernel.finish(request)
    assert request.error == "KeyboardInterrupt"
    assert kernel.run("session.Session.run = whole; len(pressed)").status == "ok"
    assert time.monotonic() - started > 2
