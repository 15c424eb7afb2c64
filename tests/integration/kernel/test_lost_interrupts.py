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

OWN_HANDLER = """
import signal, time
from ciao_kernel.jupyter.lost_interrupts import raising_again

calls = []
class Final:
    def __del__(self):
        raise KeyboardInterrupt

with raising_again():
    signal.signal(signal.SIGINT, lambda *_: calls.append(1))
    Final()
    time.sleep(0.5)
    assert calls == [1], calls
    mine = lambda *_: calls.append(2)
    Final()
    signal.signal(signal.SIGINT, mine)  # the code changes its mind before the interrupt is back
    time.sleep(0.5)
    assert calls == [1, 2], calls
    assert signal.getsignal(signal.SIGINT) is mine
"""


@pytest.mark.parametrize("program", [ROUNDS, OWN_HANDLER], ids=["before-a-wait", "own-handler"])
def test_an_interrupt_arrives_once(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stderr == ""
    assert (done.returncode, done.stdout) == (0, "")
