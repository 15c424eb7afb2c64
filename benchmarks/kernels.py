"""Start kernels for the benchmarks, each from a kernelspec made for it."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

MODULES = {"ciao": "ciao_kernel", "python3": "ipykernel_launcher"}


@contextlib.contextmanager
def started(
    name: str, env: dict[str, str] | None = None
) -> Iterator[tuple[KernelManager, BlockingKernelClient, float]]:
    """Start a kernel; yield its manager, a client, and the seconds until kernel_info came."""
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, name)
        spec.mkdir()
        argv = [sys.executable, "-m", MODULES[name], "--log-level=ERROR"]
        record = {
            "argv": [*argv, "-f", "{connection_file}"],
            "display_name": name,
            "language": "python",
            "env": {"CIAO_STORAGE": str(Path(folder, "jobs")), **(env or {})},
        }
        spec.joinpath("kernel.json").write_text(json.dumps(record))
        manager = KernelManager(
            kernel_name=name, kernel_spec_manager=KernelSpecManager(kernel_dirs=[folder])
        )
        began = time.perf_counter()
        manager.start_kernel()
        client = manager.blocking_client()
        client.start_channels(hb=False)
        try:
            _ask(client, client.get_shell_msg)
            took = time.perf_counter() - began
            _ask(client, client.get_iopub_msg)  # its subscription takes a moment longer
            yield manager, client, took
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def _ask(client: BlockingKernelClient, get: Callable[..., object]) -> None:
    """Ask for kernel_info until a channel answers: before it listens, requests are lost."""
    for _ in range(3000):
        client.kernel_info()
        with contextlib.suppress(Empty):
            get(timeout=0.01)
            return
    raise TimeoutError("the kernel did not answer")
