"""Local jobs with a network of their own: who reaches their ports, and what they reach."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.backends.local.machine import isolation, private_network
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.model.queries import Streams
from tests.helpers.jobs import Place, Recorder, replica

ROOT = Path(__file__).parents[3]
NOBODY = 65534

LISTENS = """
%framework=tensorflow
%worker=2
import os, socket, time
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
def read(name):
    wait(name)
    return open(name).read()
def write(name, text):
    open(name + ".part", "w").write(text)
    os.rename(name + ".part", name)
if os.environ["CIAO_REPLICA"] == "worker-0":
    server = socket.create_server(("0.0.0.0", 0))
    write("port", str(server.getsockname()[1]))
    peer, _ = server.accept()
    print(peer.recv(5))
    print("namespace", os.readlink("/proc/self/ns/net"))
else:
    socket.create_connection(("127.0.0.1", int(read("port")))).sendall(b"hello")
    try:
        socket.create_connection(("192.0.2.1", 80))
    except OSError as error:
        print("outside:", error.strerror)
wait("go")
"""


@pytest.fixture(autouse=True)
def allowed() -> None:
    """Skip where this machine does not let a job have a network of its own."""
    try:
        asyncio.run(isolation.check())
    except EnvironmentFault as fault:
        pytest.skip(fault.message)


def test_only_the_job_reaches_its_ports_and_it_reaches_nothing_else(jobs: Place) -> None:
    async def main() -> None:
        display, out = Recorder(), bytearray()
        session = jobs.session(local_network="isolated")
        work = asyncio.ensure_future(jobs.ended(LISTENS, session, display))
        await display.until("namespace")
        await display.until("outside: Network is unreachable", replica="worker-1")
        assert display.job is not None
        folder = jobs.storage / "jobs" / display.job.name / "work"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int((folder / "port").read_text())))
        backend, job, _ = await session.find(display.job.name)
        streams = Streams(out=out.extend, err=out.extend)
        code = await backend.execute(
            job, replica("worker-1"), ["readlink", "/proc/self/ns/net"], streams
        )
        assert code == 0
        assert b"namespace " + bytes(out) in display.data("worker-0")
        assert out.decode().strip() != str(Path("/proc/self/ns/net").readlink())
        (folder / "go").touch()
        assert (await work).error is None

    asyncio.run(main())


def test_a_job_uses_the_network_of_this_machine_unless_asked(jobs: Place) -> None:
    ended = jobs.run("%framework=tensorflow\nimport os\nprint(os.readlink('/proc/self/ns/net'))\n")
    assert ended.log("worker-0").decode().strip() == str(Path("/proc/self/ns/net").readlink())


def test_a_user_without_privileges_may_create_one() -> None:
    if os.geteuid():
        pytest.skip("the other tests run without privileges then")
    program = f"""if True:
        import os, socket, sys
        sys.path.append({str(ROOT)!r})
        from ciao_kernel.backends.local import parentage
        from ciao_kernel.backends.local.machine.private_network import create
        prctl = parentage.load()
        "localhost".encode("idna")  # The standard library may be unreadable for that user.
        os.setgroups([])
        os.setresgid(*3 * [{NOBODY}])
        os.setresuid(*3 * [{NOBODY}])
        prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else its own /proc belongs to root
        network = create()
        place = os.readlink("/proc/self/ns/net")
        told, tells = os.pipe()
        if not os.fork():
            network.enter()
            server = socket.create_server(("127.0.0.1", 0))
            socket.create_connection(server.getsockname())
            print(os.getuid(), os.readlink("/proc/self/ns/net") != place, flush=True)
            os.write(tells, b"1")
            os._exit(0)
        os.close(tells)
        os.read(told, 1)
        print(os.readlink("/proc/self/ns/net") == place)
    """
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, input="", timeout=60)
    assert (done.stdout, done.stderr) == (f"{NOBODY} True\nTrue\n", "")


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSPC, errno.EINVAL])
def test_a_refusal_of_linux_is_an_error_with_the_reason(code: int) -> None:
    def refuse(name: str, first: int, second: int) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(OSError, match=r"permitted|limit|has no network") as caught:
        private_network.create(refuse)
    assert caught.value.errno == code


def test_a_refusal_is_said_before_the_job_exists(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="of their own: Operation not permitted") as caught:
        asyncio.run(isolation.check(str(python)))
    assert "localNetwork=host" in caught.value.hint


def test_a_replica_is_started_again_in_the_same_network(jobs: Place) -> None:
    ended = jobs.run(
        """
        %framework=tensorflow
        %restartPolicy=OnFailure
        import os
        print(os.readlink("/proc/self/ns/net"), flush=True)
        if not os.path.exists("tried"):
            open("tried", "w").close()
            raise SystemExit(1)
        """,
        local_network="isolated",
    )
    assert ended.error is None
    first, second = ended.display.data("worker-0").splitlines()
    assert first == second != os.fsencode(Path("/proc/self/ns/net").readlink())
