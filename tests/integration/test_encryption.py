"""CurveZMQ between a server and the kernel, with the kernelspec that ``ciao install`` writes.

Not in tests/integration/kernel, which also runs with releases of Jupyter that cannot encrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import zmq
from zmq.utils import monitor

from ciao_kernel.commands import kernelspec
from tests.helpers.kernels import JOB, SILENT, WAIT, Kernel, Place

REFUSED = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


@pytest.fixture
def sealed(place: Place) -> str:
    """The name of a kernelspec of ``ciao install``."""
    written = kernelspec.install(prefix=str(place.folder / "prefix"), name="sealed")
    (place.kernels / "sealed").symlink_to(written)
    return "sealed"


@pytest.fixture
def start(place: Place) -> Iterator[Callable[[str, str], Kernel]]:
    """Start a kernel by its kernelspec, of a server with a policy; it ends with the test."""
    kernels: list[Kernel] = []

    def one(name: str, encryption: str) -> Kernel:
        kernels.append(Kernel(place, name, encryption=encryption))
        return kernels[-1]

    yield one
    for kernel in kernels:
        kernel.shutdown(now=True)


def handshake(kernel: Kernel, channel: str) -> bool:
    """Whether the kernel talks to somebody without its keys, as it has them in its own file."""
    info = kernel.manager.get_connection_info()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        events = socket.get_monitor_socket(REFUSED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        socket.connect(f"{info['transport']}://{info['ip']}:{info[f'{channel}_port']}")
        try:
            assert events.poll(int(WAIT * 1000)), "no handshake at all"
            event = monitor.recv_monitor_message(events)["event"]
        finally:
            socket.disable_monitor()
            events.close()
    return bool(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)


@pytest.mark.parametrize("policy", ["required", "auto"])
def test_only_who_has_the_keys_is_heard(
    start: Callable[[str, str], Kernel], sealed: str, policy: str
) -> None:
    kernel = start(sealed, policy)
    assert kernel.run("print(6 * 7)").text == "42\n"
    assert [handshake(kernel, channel) for channel in ("shell", "control", "stdin")] == [False] * 3


def test_the_wheels_own_kernelspec_promises_nothing(
    start: Callable[[str, str], Kernel],
) -> None:
    """It may start an older ipykernel, which would wait for clients that it cannot understand."""
    kernel = start("ciao", "auto")
    assert kernel.run("print(6 * 7)").text == "42\n"
    assert handshake(kernel, "shell")


def test_jobs_run_stop_and_are_followed_from_elsewhere(
    start: Callable[[str, str], Kernel], sealed: str, place: Place
) -> None:
    kernel = start(sealed, "required")
    done = kernel.run(JOB + "print('trained')\n")
    assert done.status == "ok"
    assert done.text.count("trained\n") == 2

    stopped = kernel.execute(SILENT)
    kernel.wait_running(stopped, place)
    kernel.interrupt()
    assert kernel.finish(stopped).error == "KeyboardInterrupt"
    place.wait_empty()

    kernel.run(SILENT.replace(JOB, JOB + "%name=far\n%detach\n"))
    followed = kernel.execute("%ciao attach far")
    kernel.wait_running(followed, place)
    other = kernel.client()  # while the cell runs
    assert other.ask("complete_request", {"code": "%framew", "cursor_pos": 7})["matches"]
    other.close()
    kernel.restart()
    again = kernel.execute("%ciao attach far")
    kernel.wait_running(again, place)
    kernel.interrupt()
    kernel.finish(again)
    kernel.run("%ciao delete far")
    place.wait_empty()
