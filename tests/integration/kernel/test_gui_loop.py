"""Job cells beside the event loop of a GUI, which ipykernel runs between two requests."""

from __future__ import annotations

import pytest

from tests.helpers.kernels import JOB, SILENT, Kernel, Place

GUI = """
import asyncio
import time
from ipykernel import eventloops
turns, begun = [], [asyncio.current_task()]
kernel = get_ipython().kernel
own_hook = kernel.pre_handler_hook
kernel.pre_handler_hook = lambda: (begun.append(asyncio.current_task()), own_hook())
@eventloops.register_integration("mock")
def loop(kernel):
    received = ["run_in_context" in repr(task.get_coro()) for task in asyncio.all_tasks()]
    if sum(received) > sum(not task.done() for task in begun):
        return
    turns.append(1)
    stream = getattr(eventloops, "get_shell_stream", lambda kernel: kernel.shell_stream)(kernel)
    while not stream.flush(limit=1):
        time.sleep(.005)
get_ipython().enable_gui("mock")
"""
"""A loop that returns at a shell message, like those of tk and Qt.

It does not begin while a request has been received whose handler has not begun. ipykernel 7 waits a
millisecond instead, which is too short on a busy machine: any cell may then wait for the next
message. It handles each message in a task called ``run_in_context``; ipykernel 6 has a queue, and
its tasks never exceed those that have begun.
"""


@pytest.mark.stands_for("oldest")
def test_a_job_cell_pauses_the_loop_of_a_gui(kernel: Kernel, place: Place) -> None:
    """Else every job cell hangs, and the stop button has no effect."""
    kernel.run(GUI)
    assert kernel.run(JOB + "print('trained')").status == "ok"
    request = kernel.execute(SILENT)
    kernel.wait_running(request, place)
    kernel.interrupt()
    kernel.finish(request)
    assert request.error == "KeyboardInterrupt"
    place.wait_empty()
    for code in ("%ciao jobs", "%ciao magics", "%ciao magics worker"):
        assert kernel.run(code).status == "ok"
    before = kernel.run("print(len(turns))").text
    while kernel.run("print(len(turns))").text == before:  # it goes on between plain cells
        kernel.take(0.02)
