"""An interrupt that Python swallowed is raised again, whatever the main thread does then."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROUNDS = """
import contextlib, os, signal, time, weakref
from ciao_kernel.jupyter.lost_interrupts import raising_again

# One processor: the thread that gets the GIL sends before the main thread is in its system call.
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

class Thing: pass

def swallow(*_):
    raise KeyboardInterrupt

def alarm(*_):
    print("the interrupt of round", round, "was lost", flush=True)
    os._exit(1)

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGALRM, alarm)
for round in range(240):
    with contextlib.suppress(KeyboardInterrupt), raising_again():
        thing = Thing(); held = weakref.ref(thing, swallow); del thing
        until = time.monotonic() + 0.018 + round % 120 * 0.0001
        while time.monotonic() < until:
            sum(range(100))
        signal.alarm(30)
        time.sleep(60)
    signal.alarm(0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""

BEGIN = """
import _thread, os, signal, time
from ciao_kernel.jupyter import lost_interrupts
from ciao_kernel.jupyter.lost_interrupts import raising_again

calls = []
class Final:
    def __del__(self):
        raise KeyboardInterrupt

def until(true):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, calls
        time.sleep(0.01)
"""

OWN_HANDLER = (
    BEGIN
    + """
lost_interrupts._PAUSE = 0.5
with raising_again():
    signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    Final()
    until(lambda: calls)
    mine = lambda *_: calls.append(2)
    Final()
    signal.signal(signal.SIGINT, mine)  # the code changes its mind before the interrupt is back
    until(lambda: len(calls) == 2)
    Final()
    usual = signal.getsignal(signal.SIGINT)
    outer = lambda *each: (calls.append(3), usual(*each))
    signal.signal(signal.SIGINT, outer)
    until(lambda: len(calls) == 4)
    time.sleep(1)
    assert calls == [1, 2, 3, 2], calls
    assert signal.getsignal(signal.SIGINT) is outer
"""
)

NO_THREAD = (
    BEGIN
    + """
def refuse(*_):
    raise RuntimeError("can't start new thread")

real = _thread.start_new_thread
with raising_again():
    _thread.start_new_thread = refuse
    try:
        Final()
    finally:
        _thread.start_new_thread = real
    try:
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: False)
    except KeyboardInterrupt:
        calls.append("interrupted")
assert calls == ["interrupted"]
"""
)


def run(program: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("program", [ROUNDS, OWN_HANDLER], ids=["before-a-wait", "own-handler"])
def test_an_interrupt_arrives_once(program: str) -> None:
    done = run(program)
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "")


def test_the_next_interrupt_counts_if_no_thread_can_start() -> None:
    done = run(NO_THREAD)
    assert (done.returncode, done.stdout) == (0, "")
    assert "can't start new thread" in done.stderr
