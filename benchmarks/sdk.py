"""The kubeflow-training SDK as a peer, in an environment of its own: it pins old libraries."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

from benchmarks.clusters import JOB, Place, Reader
from tests.cluster.store import digest, make

NAME = "kubeflow-training 1.9.4"
_REQUIREMENTS = ("kubeflow-training==1.9.4",)


def python() -> str | None:
    """Its interpreter; None, which is said, if it cannot be installed."""

    def build(folder: Path) -> None:
        print(f"    installing {NAME}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *_REQUIREMENTS],
            check=True,
        )

    try:
        # A virtual environment's python finds its own packages wherever it was moved to.
        folder = make("sdk", digest(_REQUIREMENTS, sys.version), build)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"    left out: {NAME} cannot be installed ({error})")
        return None
    return str(folder / "bin" / "python")


def reader(interpreter: str, at: Place, work: str) -> Reader:
    """The SDK at work (see :mod:`benchmarks.sdk_client`), not started yet."""
    script = Path(__file__).with_name("sdk_client.py")
    image = at.cluster.image("python")  # it calls `python`, which the small one does not have
    argv = [interpreter, "-u", str(script), at.namespace.name, JOB, image, work]
    return Reader(argv, at.environment)


def said(lines: list[tuple[float, str]], word: str) -> float:
    """The seconds that the client wrote after `began` or `returned`; infinity if it did not."""
    found = (float(line.split()[1]) for _, line in lines if line.startswith(f"{word} "))
    return next(found, math.inf)
