"""A kernel whose process sleeps while its replicas end by themselves."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.helpers.kernels import Place, lines_of

pytestmark = pytest.mark.second("faults")
HEADER = "%framework=python\n%worker=2\n%warm=3s\n%name=sleeps\n"
ENDED = (
    "the warm replicas of sleeps have ended, because no run began in them for 3s; new ones start"
)


@pytest.mark.parametrize("when", ["in a run", "between runs"])
def test_a_kernel_that_slept_tells_the_truth_and_starts_new_replicas(
    kernel: Any, place: Place, when: str
) -> None:
    program = "import time\nfor line in range(200):\n    print('line', line, flush=True)\n"
    if when == "in a run":
        program += "    time.sleep(0.02)\n"
    cell = kernel.execute(HEADER + program)
    kernel.wait_text(cell, "line 3\n")
    if when == "between runs":
        kernel.finish(cell)
    kernel.process.suspend()
    try:
        place.wait_empty()  # the run, and then the time of %warm
    finally:
        kernel.process.send_signal(signal.SIGCONT)
    kernel.finish(cell)
    assert cell.status == "ok", cell.of("error")
    for replica in (0, 1):
        got = lines_of(cell.text, f"worker-{replica}")
        assert got == [f"[worker-{replica}] line {number}" for number in range(200)]
    assert kernel.run("print(_job.state, _job.run)").text == "Succeeded 1\n"
    assert "no job runs" in str(kernel.run("%ciao stacks").of("error"))
    assert kernel.run("%ciao warm").text == "no replicas are kept\n"
    again = kernel.run(f"{HEADER}print('well')")
    assert again.status == "ok", again.of("error")
    assert again.text.count("well\n") == 2
    assert ENDED in again.text
    shown = kernel.run("print(_job.run, len(_job.logs('worker-1').splitlines()))").text
    assert shown == "1 1\n"
    attached = kernel.run("%ciao logs sleeps --replica worker-0").text
    assert attached.count("line ") == 200
