"""The agent of a warm replica that was asleep, and programs whose threads do not end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.local.test_warm_agent import WRITES, Replica

pytestmark = pytest.mark.second("faults")
LEASE = 15.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    """Starts an agent, which ends with the test."""
    started: list[Replica] = []

    def start(**settings: object) -> Replica:
        started.append(Replica(tmp_path, **settings))
        return started[-1]

    yield start
    for one in started:
        one.process.send_signal(signal.SIGCONT)
        one.process.terminate()
        one.process.wait()


def asleep(replica: Replica) -> None:
    """Stop the agent, and wait until its process has stopped; one that has ended fails the test."""
    os.kill(replica.process.pid, signal.SIGSTOP)
    what = os.WSTOPPED | os.WEXITED | os.WNOWAIT  # its end is left to whoever waits for it
    found = os.waitid(os.P_PID, replica.process.pid, what)
    assert found is not None
    assert (found.si_code, found.si_status) == (os.CLD_STOPPED, signal.SIGSTOP), replica.parts


def test_an_agent_that_slept_past_its_lease_reads_what_came_meanwhile(
    start: Callable[..., Replica],
) -> None:
    replica = start(lease=LEASE)
    replica.run("pass")
    asleep(replica)
    number = replica.start("print('awake')")
    time.sleep(LEASE + 0.2)  # the lease is over when it wakes
    replica.process.send_signal(signal.SIGCONT)
    assert replica.wait_for("end", number)["code"] == 0


def test_an_agent_that_slept_past_its_lease_without_a_word_ends(
    start: Callable[..., Replica],
) -> None:
    replica = start(lease=LEASE)
    asleep(replica)
    time.sleep(LEASE + 0.2)
    replica.process.send_signal(signal.SIGCONT)
    assert replica.wait_for("bye")["why"] == "the kernel is gone"
    assert replica.process.wait() == 0


def test_an_agent_whose_input_was_closed_ends(start: Callable[..., Replica]) -> None:
    replica = start()
    replica.run("pass")
    replica.process.stdin.close()
    assert replica.wait_for("bye")["why"] == "its input was closed"
    assert replica.process.wait() == 0


def test_a_run_goes_on_without_an_input_and_the_replica_ends_as_its_program(
    start: Callable[..., Replica],
) -> None:
    replica = start()
    waits = "while not os.path.exists('go'): time.sleep(0.01)"
    number = replica.start(f"import os, time\nprint('up', flush=True)\n{waits}\nexit(3)")
    replica.wait_for_line(b"up")
    replica.process.stdin.close()
    (replica.folder / "runs" / f"run-{number}" / "go").touch()
    assert replica.wait_for("end", number)["last"] == "its input was closed"
    assert replica.process.wait() == 3


def test_files_of_a_run_are_given_although_the_kernel_is_gone(
    start: Callable[..., Replica],
) -> None:
    replica = start(runLease=0.2)
    words = {"way": "log", "words": ["model/"], "limit": 1 << 20}
    program = "import time\ntime.sleep(0.5)\n" + WRITES.format(1)
    end, _ = replica.run(program, files=words)
    assert (end["gives"], end["last"]) == (True, "the kernel is gone")
    assert replica.wait_for("given", 1)["fault"] == ""
    assert any(part.get("ev") == "files" for part in replica.parts if isinstance(part, dict))
    assert replica.process.wait() == 0


def test_a_stop_ends_a_program_whose_thread_never_ends(start: Callable[..., Replica]) -> None:
    replica = start()
    number = replica.start(
        "import threading\n"
        "def hang():\n    print('hangs', flush=True)\n    threading.Event().wait()\n"
        "threading.Thread(target=hang).start()\n"
        "print('the end of the program')\n"
    )
    replica.wait_for_line(b"hangs")
    replica.send(op="stop", id=number, grace=0.2)
    end = replica.wait_for("end", number)
    assert (end["code"], end["why"]) == (-signal.SIGTERM, "stopped")
    assert replica.run("print('well')")[1] == "well\n"


def test_a_program_that_a_library_blocks_for_ever_is_killed(start: Callable[..., Replica]) -> None:
    replica = start()
    number = replica.start(
        "import ctypes, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('never seen'))\n"
        "print('blocks', flush=True)\n"
        "lock = ctypes.create_string_buffer(64)\n"
        "libc = ctypes.PyDLL(None)\n"  # holds the GIL: no handler of Python runs
        "libc.pthread_mutex_lock(lock)\nlibc.pthread_mutex_lock(lock)\n"
    )
    replica.wait_for_line(b"blocks")
    replica.send(op="stop", id=number, grace=0.2)
    end = replica.wait_for("end", number)
    assert (end["code"], end["why"]) == (-signal.SIGKILL, "stopped")
    assert replica.run("print('well')")[1] == "well\n"
