"""Replicas that are started again on this machine, by the rules of a cluster."""

from __future__ import annotations

import asyncio

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.model import State
from tests.helpers.jobs import Ended, Place, Recorder, interrupted, wait

TRIES = """
import os, signal, sys, time
with open("tries-" + os.environ["CIAO_REPLICA"], "a") as file:
    file.write("x")
tries = os.path.getsize("tries-" + os.environ["CIAO_REPLICA"])
"""
"""Counts the runs of a replica in ``tries``."""


def run(jobs: Place, header: str, program: str) -> Ended:
    return jobs.run(f"%framework=tensorflow\n{header}\n{TRIES}{program}")


def restarts(display: Recorder, replica: str = "worker-0") -> int:
    return next(one.restarts for one in display.status.replicas if str(one.replica) == replica)


def test_a_replica_that_fails_is_started_again_until_it_succeeds(jobs: Place) -> None:
    ended = run(
        jobs,
        "%worker=2\n%restartPolicy=OnFailure",
        """
print("try", tries)
if os.environ["CIAO_REPLICA"] == "worker-1":
    while not os.path.exists("done"):
        time.sleep(0.01)
elif tries < 3:
    print("unfinished", end="")
    sys.exit(tries)
else:
    open("done", "w").close()
""",
    )
    assert ended.error is None
    shown = b"try 1\nunfinished\ntry 2\nunfinished\ntry 3\n"
    assert ended.display.data("worker-0") == ended.log("worker-0") == shown
    assert ended.display.data("worker-1") == b"try 1\n"
    assert (restarts(ended.display), restarts(ended.display, "worker-1")) == (2, 0)
    assert "worker-0 was restarted (exit code 2), try 3" in ended.display.notices
    assert "have no effect" not in ended.display.notices


@pytest.mark.parametrize(
    ("policy", "end", "state"),
    [
        ("ExitCode", "sys.exit(127)", State.FAILED),
        ("ExitCode", "sys.exit(128)", State.SUCCEEDED),
        ("ExitCode", "os.kill(os.getpid(), signal.SIGKILL)", State.SUCCEEDED),
        ("Never", "sys.exit(128)", State.FAILED),
        ("OnFailure", "sys.exit(127)", State.SUCCEEDED),
    ],
)
def test_the_policy_decides(jobs: Place, policy: str, end: str, state: State) -> None:
    header = f"%worker=1\n%restartPolicy={policy}"
    ended = run(jobs, header, f"if tries == 1:\n    {end}\nprint('again')\n")
    assert ended.display.status.state is state
    assert ended.display.data("worker-0") == (b"again\n" if state is State.SUCCEEDED else b"")


def test_the_job_fails_when_the_limit_is_reached(jobs: Place) -> None:
    header = "%worker=1\n%restartPolicy=OnFailure\n%backoffLimit=2"
    ended = run(jobs, header, "print('try', tries)\nraise ValueError(f'bad {tries}')\n")
    assert isinstance(ended.error, JobFailed)
    message = "worker-0 ended with exit code 1 after 1 restart: ValueError: bad 2"
    assert ended.error.message == message
    assert ended.display.status.reason == "BackoffLimitExceeded"
    assert ended.display.data("worker-0").count(b"try ") == 2


def test_always_restarts_a_success_too_until_the_limit(jobs: Place) -> None:
    header = "%worker=1\n%restartPolicy=Always\n%backoffLimit=3"
    ended = run(jobs, header, "print('try', tries)\n")
    assert isinstance(ended.error, JobFailed)
    assert ended.error.message == "worker-0 ended again, and %backoffLimit is reached."
    assert ended.display.data("worker-0") == b"try 1\ntry 2\ntry 3\n"


def test_nothing_of_a_run_disturbs_the_next_one(jobs: Place) -> None:
    ended = run(
        jobs,
        "%worker=1\n%restartPolicy=OnFailure",
        """
import subprocess
if tries == 1:
    loop = "import time\\nwhile True: print('old', flush=True); time.sleep(0.01)"
    child = subprocess.Popen([sys.executable, "-c", loop], start_new_session=True)
    open("child", "w").write(str(child.pid))
    sys.exit(1)
print("alive" if os.path.exists(f"/proc/{open('child').read()}/exe") else "alone")
""",
    )
    assert ended.error is None
    assert ended.display.data("worker-0").replace(b"old\n", b"") == b"alone\n"


WAITS = "%worker=2\n%restartPolicy=OnFailure\n%name=waits"
FAILS = """
if os.environ["CIAO_REPLICA"] == "worker-0":
    print("failed", tries, flush=True)
    sys.exit(1)
print("beside", flush=True)
time.sleep(600)
"""


def test_the_deadline_ends_a_job_between_two_restarts(jobs: Place) -> None:
    ended = run(jobs, f"{WAITS}\n%deadline=2s", FAILS)
    assert isinstance(ended.error, JobFailed)
    assert "deadline" in ended.error.message
    assert ended.display.state("worker-1") is State.STOPPED


def test_the_stop_button_ends_a_job_between_two_restarts(jobs: Place) -> None:
    async def scenario() -> Recorder:
        display = Recorder()
        text = f"%framework=tensorflow\n{WAITS}\n{TRIES}{FAILS}"
        work = asyncio.create_task(jobs.ended(text, jobs.session(), display))
        await display.until("failed 5")  # the next restart would come after eight seconds
        await display.until("beside", replica="worker-1")
        await wait(lambda: display.state("worker-0") is State.PENDING)
        await interrupted(work)
        return display

    display = asyncio.run(scenario())
    assert display.data("worker-0").count(b"failed") == 5
    assert restarts(display) == 4  # the fifth was planned, and not made


def test_a_dry_run_shows_the_restarts(jobs: Place) -> None:
    header = "%worker=1\n%dryrun\n%restartPolicy=ExitCode\n%backoffLimit=3"
    text = run(jobs, header, "").display.notices
    assert (
        "\nrestarts:\n  a replica that ends with an exit code of 128 or more, or by a signal, is "
        "started again; instead of restart 3 the job fails\n" in text
    )
    assert "restarts:" not in run(jobs, "%worker=1\n%dryrun", "").display.notices
