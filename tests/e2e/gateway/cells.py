"""Cells of a kernel in a pod, and what is waited for after each."""

from __future__ import annotations

from tests.e2e.gateway.client import RemoteKernel

SHORT = "%framework=tensorflow\n%worker=1\nprint('ran')\n"


def cell(name: str, *directives: str) -> str:
    head = "\n".join(["%framework=tensorflow", f"%name={name}", "%worker=1", *directives])
    return f"{head}\nimport time\nprint('here', flush=True)\ntime.sleep(600)\n"


def running(kernel: RemoteKernel, name: str) -> None:
    """Start a job and see it run; its cell goes on."""
    kernel.wait_text(kernel.execute(cell(name)), "here")


def detached(kernel: RemoteKernel, name: str) -> None:
    done = kernel.run(cell(name, "%detach"))
    assert done.status == "ok", done.of("error")
