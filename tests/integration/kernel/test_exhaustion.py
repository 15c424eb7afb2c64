"""A kernel that has no more open files, because cells have opened many and closed none."""

from __future__ import annotations

from tests.helpers.kernels import JOB, Kernel, Place

LIMIT = "resource.setrlimit(resource.RLIMIT_NOFILE, (opened + {}, hard))"
FEWEST, MOST = -2, 60
"""Open files beyond those that the kernel has: no job cell runs with the first number."""


def test_a_job_cell_names_the_limit(kernel: Kernel, place: Place) -> None:
    kernel.run(
        "import os, resource\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "opened = len(os.listdir('/proc/self/fd'))"
    )
    for free in range(FEWEST, MOST):
        assert kernel.run(LIMIT.format(free)).status == "ok"
        request = kernel.run(JOB + "print('ran')")
        if request.status == "ok":
            break
        (error,) = request.of("error")
        assert error["ename"] == "EnvironmentFault", error["traceback"]
        assert "this process has too many open files" in error["evalue"]
    assert FEWEST < free < MOST - 1
    place.wait_empty()
