"""Suggests fixes for a failed job, based on the text at the end of a log."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from pathlib import Path

from ciao_kernel.magics.shell_words import quote
from ciao_kernel.model import Job, ReplicaStatus
from ciao_kernel.session.failure.tracebacks import Trace

_MISSING = re.compile(
    r"No such file or directory:? (?:'([^'\n]+)'|\"([^\"\n]+)\")|(?<![^\s;])([^\s;]+); No such file"
)
_TAKEN = re.compile(r"(?i:Address already in use)|EADDRINUSE|errno: 98")
# gRPC logs why it has no port, and NCCL which call failed, on lines next to the traceback.
_TAKEN_BESIDE = re.compile(rf"{_TAKEN.pattern}|No address added out of total")
_NETWORK = re.compile(
    r"(?i:grpc|nccl|gloo|c10d|rendezvous|server socket|\bbind|\blisten)|\bDist\w*Error"
)
_LINES = 200
_LAST_LINES = 10
_LINES_BEFORE = 20


def hint(lines: list[str], trace: Trace | None, one: ReplicaStatus, folder: Path, job: Job) -> str:
    """Return a possible fix, else the location of the whole log.

    Args:
        lines: Log of the replica to blame, or the end of it.
        trace: Traceback that the replica ended with, or None.
        one: Status of that replica.
        folder: The user's working folder, to find files that the job missed.
        job: The job that failed.
    """
    text = "\n".join(lines[-_LINES:])
    # Programs try a module or a port and continue without it: only the end shows what was needed.
    end = "\n".join(trace.said if trace else last(lines))
    found = (
        _missing_file(text, folder, job)
        or _missing_module(end, folder, job)
        or _port(end, lines[max(0, trace.start - _LINES_BEFORE) :] if trace else [], job)
        or _disk(text, job)
        or _memory(text, one, job)
    )
    return found or (f"The whole log is in {one.log}." if one.log else "")


def last(lines: list[str]) -> list[str]:
    """Return the last lines of a log that are not blank."""
    return [line for line in lines if line.strip()][-_LAST_LINES:]


def _missing_file(text: str, folder: Path, job: Job) -> str:
    for groups in reversed(_MISSING.findall(text)):
        name = "".join(groups).removeprefix(f"{job.workdir}/")
        if _beside(name, folder):
            return _send(name)
    return ""


def _missing_module(text: str, folder: Path, job: Job) -> str:
    names = re.findall(r"ModuleNotFoundError: No module named '([^'\n]+)'", text)
    if not names:
        return ""
    top = names[-1].split(".")[0]
    for path in (f"{top}.py", top):
        if _beside(path, folder):
            return _send(path)
    if job.on_cluster:
        return (
            f"Add %packages={top}, if that is the name of its package, or choose an image that has "
            "it with %image."
        )
    return (
        "Install the package that provides it for the replicas' Python (pip install "
        f"{top}, if that is its name), or name another Python with %python."
    )


def _beside(name: str, folder: Path) -> bool:
    path = Path(name)
    with contextlib.suppress(OSError, ValueError):
        return not path.is_absolute() and ".." not in path.parts and (folder / path).exists()
    return False


def _send(name: str) -> str:
    return f"{name} is next to your code; add a line %files={quote(name)} to send it to the job."


def _port(end: str, beside: list[str], job: Job) -> str:
    taken = _TAKEN.search(end) or (_NETWORK.search(end) and _TAKEN_BESIDE.search("\n".join(beside)))
    if not taken:
        return ""
    if job.on_cluster:
        return (
            "A port is already in use in the pod. On a cluster the operator fixes the port of each "
            "replica (TF_CONFIG or MASTER_PORT names it): start only one server in a replica."
        )
    return "Another program took one of this job's ports. Run it again: it will get new ports."


def _disk(text: str, job: Job) -> str:
    full = "No space left on device" in text or "Disk quota exceeded" in text
    if job.on_cluster:
        return "The pod's disk is full. Write less to it, or write to a bucket." if full else ""
    with contextlib.suppress(OSError):
        # A full disk has no room for the traceback either.
        full = full or shutil.disk_usage(job.files).free < 1024 * 1024
    if full:
        return "The disk is full. `%ciao delete --finished` removes old jobs and their files."
    return ""


def _memory(text: str, one: ReplicaStatus, job: Job) -> str:
    if "CUDA out of memory" in text:
        return "The GPU ran out of memory: a smaller batch may fit."
    killed = one.exit_code == -signal.SIGKILL and not (job.on_cluster and one.reason)
    killed = killed or one.reason == "OOMKilled"
    if not killed and "MemoryError" not in text:
        return ""
    if not job.on_cluster:
        return "The machine may have run out of memory: try fewer replicas, or smaller batches."
    if limit := _memory_limit(job, one.replica.role):
        return f"Its limit was %memory={limit}: set a higher %memory, or try smaller batches."
    return (
        "The cell has no %memory, so a limit of the namespace or the node's memory applied: set "
        "%memory, or try smaller batches."
    )


def _memory_limit(job: Job, role: str) -> str:
    """Return the memory that the job's stored header gives to a role; "" if it gives none."""
    common = ""
    for line in job.header.splitlines():
        first, *more = line.split(";")
        for piece in (first, *more):
            name, _, value = piece.partition("=")
            if name != "%memory":
                continue
            if first.startswith(f"%{role}="):
                return value
            if piece is first:
                common = value
    return common
