"""The relay of MPI jobs without an operator: launcher, worker and agent as processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ciao_kernel.frameworks import mpi_relay
from ciao_kernel.model import Address, Replica

LAUNCHER, WORKER = Replica("launcher", 0), Replica("worker", 0)
START = f"""\
import os, queue, sys, threading, time
folder, agent, slots = os.environ["CIAO_MPI"], os.environ["CIAO_MPI_AGENT"], "2"
{mpi_relay.START}
print("ready", flush=True)
time.sleep(600)
"""


class Pods:
    """A launcher, and a worker that may be started later, each with a folder of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self._addresses = {WORKER: Address("127.0.0.1", 9), LAUNCHER: Address("127.0.0.1", port)}
        command = [sys.executable, "-u", "-c", START]
        launcher = self._start(command, LAUNCHER, stdout=subprocess.PIPE)
        assert launcher.stdout
        assert launcher.stdout.readline() == b"ready\n"

    def environment(self, one: Replica) -> dict[str, str]:
        own = self._folder / str(one)
        own.mkdir(exist_ok=True)
        variables = mpi_relay.variables(str(own), one, LAUNCHER, self._addresses)
        mine = {"CIAO_MPI": str(own), "CIAO_JOB": "mine", "CIAO_REPLICA": str(one)}
        return {**os.environ, **mine, **variables}

    def start_worker(self, **changes: str) -> subprocess.Popen[bytes]:
        text = f"{mpi_relay.SERVE}wait"
        return self._start(["sh", "-c", text, "sh", sys.executable], WORKER, **changes)

    def call(self, host: str, *words: str) -> tuple[int, bytes, bytes]:
        environment = self.environment(LAUNCHER)
        done = subprocess.run(
            [environment["CIAO_MPI_AGENT"], host, *words],
            env=environment,
            capture_output=True,
            timeout=100,
        )
        return done.returncode, done.stdout, done.stderr

    def _start(
        self, command: list[str], one: Replica, stdout: int | None = None, **changes: str
    ) -> subprocess.Popen[bytes]:
        environment = {**self.environment(one), **changes}
        process = subprocess.Popen(command, env=environment, stdout=stdout, start_new_session=True)
        self._stack.callback(process.wait)
        self._stack.callback(os.killpg, process.pid, signal.SIGKILL)
        return process


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with ExitStack() as stack:
        yield Pods(tmp_path, stack)


def reached(pods: Pods) -> None:
    for _ in range(100):
        if pods.call("mine-worker-0", "true")[0] == 0:
            return
    raise AssertionError("the worker is not reached")


def test_a_command_runs_in_the_worker_with_its_variables(pods: Pods) -> None:
    code, out, error = pods.call("mine-worker-0", "true")
    assert (code, out) == (255, b"")
    assert error == b"it has not connected to the launcher\n"
    pods.start_worker(EPOCHS="3 $(A)")
    reached(pods)
    for host in ("127.0.0.1", "mine-worker-0"):
        command = "echo $CIAO_REPLICA $EPOCHS; printf '\\377' >&2; exit 7"
        assert pods.call(host, *command.split(" ")) == (7, b"worker-0 3 $(A)\n", b"\xff")
    assert pods.call("127.0.0.1", "kill -9 $$")[0] == 128 + signal.SIGKILL
    code, out, error = pods.call("127.0.0.1", "head -c 3000000 /dev/zero")
    assert (code, len(out)) == (0, 3000000)
    assert pods.call("another", "true")[0] == 255


def test_nobody_takes_the_place_of_a_worker(pods: Pods, tmp_path: Path) -> None:
    """Neither under a name that the job has not, nor from another address."""
    pods.start_worker(CIAO_REPLICA="worker-1")
    host, _, port = pods.environment(WORKER)["CIAO_MPI_RELAY"].rpartition(":")
    with socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0)) as other:
        other.sendall(b"worker-0\n")
        assert pods.call("mine-worker-0", "true")[0] == 255


def test_an_agent_ends_when_its_worker_does(pods: Pods) -> None:
    worker = pods.start_worker()
    reached(pods)
    code, _, error = pods.call("127.0.0.1", f"kill -9 -{worker.pid}; sleep 0.1")
    assert code == 255
    assert error == b"the connection to 127.0.0.1 is lost\n"


def test_the_list_of_hosts_has_their_slots(pods: Pods) -> None:
    environment = pods.environment(LAUNCHER)
    hosts = Path(environment["PRTE_MCA_prte_default_hostfile"]).read_text()
    assert hosts == "127 slots=2\n"  # the first part of a name
