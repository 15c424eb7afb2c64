"""Suggests fixes for a failed job, based on the text at the end of a log."""

from __future__ import annotations

import contextlib
import posixpath
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ciao_kernel.delivery.input.imports import CELL, TEXT
from ciao_kernel.delivery.input.variables import storable_names
from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directives import inputs, outputs
from ciao_kernel.magics.directives.surviving import has_checkpoint
from ciao_kernel.magics.shell_words import quote
from ciao_kernel.model import Job, ReplicaStatus
from ciao_kernel.model.outputs import OUTPUT_FOLDER
from ciao_kernel.model.status import POD_SECURITY
from ciao_kernel.session.failure.distributions import distribution, similar
from ciao_kernel.session.failure.evidence import Failure
from ciao_kernel.session.failure.image_hint import image_hint
from ciao_kernel.session.failure.python_hint import python_hint
from ciao_kernel.session.failure.tracebacks import Trace
from ciao_kernel.session.failure.volume_hint import volume_hint
from ciao_kernel.session.inspection import memory_advice
from ciao_kernel.session.keras_note import REMEDY
from ciao_kernel.visible_text import short

_MISSING = re.compile(
    r"No such file or directory:? (?:'([^'\n]+)'|\"([^\"\n]+)\")|(?<![^\s;])([^\s;]+); No such file"
)
_EXISTS = re.compile(r"FileExistsError: \[Errno 17\] File exists: (['\"])([^\n]+)\1")
_TAKEN = re.compile(r"(?i:Address already in use)|EADDRINUSE|errno: 98")
# gRPC logs why it has no port, and NCCL which call failed, on lines next to the traceback.
_TAKEN_BESIDE = re.compile(rf"{_TAKEN.pattern}|No address added out of total")
_NETWORK = re.compile(
    r"(?i:grpc|nccl|gloo|c10d|rendezvous|server socket|\bbind|\blisten)|\bDist\w*Error"
)
_NAME = re.compile(r"NameError: (?:global )?name '([^'\n]+)' is not defined")
_OF_IPYTHON = {
    "display": "print the value, or bring a file back by %output.",
    "get_ipython": "leave the call out, or run it in a plain cell.",
}
_READS = "EOFError: EOF when reading a line"
"""Error of input(); that of an empty pickle has another text."""
_QUITS = re.compile(r"^(?:\[rank\d+\]: )?bdb\.BdbQuit\b", re.MULTILINE)
_PROMPT = re.compile(r"\(Pdb\) |\bipdb> ")
_BREAKPOINT = "breakpoint() opens a prompt, but not with %inspect=off or %warm."
_KERAS_3 = re.compile(r"unsupported type[^\n]{0,200}PerReplica|create_per_worker_dataset")
_KILLED_PROCESS = re.compile(r"^  exitcode +: -9\b", re.MULTILINE)
"""What torchrun reports of a process that was killed."""
_DISK_FULL = "The pod's disk is full. Write less to it, or write to a bucket."
_LINES = 200
_LAST_LINES = 10
_LINES_BEFORE = 20


def hint(
    failure: Failure, lines: list[str], trace: Trace | None, one: ReplicaStatus, message: str
) -> str:
    """Return a possible fix, else the location of the whole log.

    Args:
        failure: The job that failed.
        lines: Log of the replica to blame, or the end of it.
        trace: Traceback that the replica ended with, or None.
        one: Status of that replica.
        message: The error of the cell, in one sentence.
    """
    job, folder = failure.job, failure.folder
    text = "\n".join(lines[-_LINES:])
    # Programs try a module or a port and continue without it: only the end shows what was needed.
    end = "\n".join(trace.said if trace else last(lines))
    shown = trace.lines if trace else last(lines) or [""]
    # A program may also skip a batch for which there was no memory, and fail by another error.
    cause = end if trace else text
    found = (
        image_hint(failure.status.reason, message, job)
        or python_hint(shown, trace.error if trace else shown[-1], job)
        or _missing_file(text, folder, job)
        or _existing_folder(end, job)
        or _missing_module(end, folder, failure)
        or _missing_name(end, failure.variables, job)
        or _missing_input(end, text)
        or _keras(text)
        or _port(end, lines[max(0, trace.start - _LINES_BEFORE) :] if trace else [], job)
        or volume_hint(end, job, one.replica.role)
        or _disk(cause, job)
        or _memory(cause, text, one, failure)
        or _loss(one, job)
    )
    return found or (f"The whole log is in {one.log}." if one.log else "")


def refused_pods(message: str) -> str:
    """Return the remedy for a job whose pods Pod Security refuses; "" if it does not.

    Args:
        message: The error of the cell, with the words of Kubernetes.
    """
    if POD_SECURITY not in message:
        return ""
    by_cell = "A %podPatch can set the fields named above."
    if f'{POD_SECURITY} "restricted' not in message:
        return by_cell
    return (
        f"{by_cell} For all jobs, an administrator labels the namespace "
        "pod-security.kubernetes.io/enforce=restricted, and grants you `get` of it: ciao then sets "
        "these fields itself."
    )


def was_taken_away(one: ReplicaStatus, job: Job) -> bool:
    """Return whether the cluster ended a replica and told why, as at a shutdown of its node."""
    killed = one.exit_code in (-signal.SIGKILL, -signal.SIGTERM)
    return job.on_cluster and killed and one.reason not in ("", "deleted", "OOMKilled")


def last(lines: list[str]) -> list[str]:
    """Return the last lines of a log that are not blank."""
    return [line for line in lines if line.strip()][-_LAST_LINES:]


def _missing_file(text: str, folder: Path, job: Job) -> str:
    for groups in reversed(_MISSING.findall(text)):
        name = "".join(groups).removeprefix(f"{job.workdir}/")
        if _beside(name, folder):
            return _send(name, job)
    return ""


def _existing_folder(end: str, job: Job) -> str:
    found = _EXISTS.findall(end)
    if not found:
        return ""
    name = posixpath.normpath(found[-1][1].removeprefix(f"{job.workdir}/"))
    made = OUTPUT_FOLDER in outputs.words_in(job.header)
    if made and f"{name}/" == OUTPUT_FOLDER:
        return (
            f"%output has made the folder {name} before the program started: leave the call out, "
            "or use os.makedirs with exist_ok=True."
        )
    if job.on_cluster or len(job.replicas) == 1 or posixpath.isabs(name):
        return ""
    return (
        "All replicas of a job share a folder on this machine, so another one may have made "
        f"{short(name)}: use os.makedirs with exist_ok=True, or let one replica make it."
    )


def _missing_module(text: str, folder: Path, failure: Failure) -> str:
    job = failure.job
    names = re.findall(r"ModuleNotFoundError: No module named '([^'\n]+)'", text)
    if not names:
        return ""
    top = names[-1].split(".")[0]
    for path in (f"{top}.py", top):
        if _beside(path, folder):
            return _send(path, job)
    known = distribution(names[-1])
    package = known or top
    unsure = "" if known else ", if that is the name of its package"
    near = "" if known else similar(top)
    question = f"Did you mean {near}? " if near else ""
    if job.on_cluster:
        named = failure.registry or "registry" in stored_header.names(job.header)
        advice = f"Add %packages={package}{unsure}, or choose an image that has it with %image."
        if not named:
            advice += " %packages also needs a registry for the new image: %registry=HOST/PATH."
    else:
        advice = (
            f"Add %packages={package}{unsure}, which installs it for this job, or name a Python "
            "that has it with %python."
        )
    return question + advice


def _missing_name(text: str, variables: Mapping[str, Any], job: Job) -> str:
    names = _NAME.findall(text)
    if not names:
        return ""
    name = names[-1]
    if name in inputs.of_header(job.header):
        return f"%input brings {name} to the job; add `from ciao_input import {name}` to the code."
    if name in storable_names(variables):
        return (
            f"{name} is a variable of the notebook, and a job is a program of its own: "
            f"add %input={name} and `from ciao_input import {name}`."
        )
    if name in _OF_IPYTHON:
        return f"{name} is IPython's, and a job is a program of its own: {_OF_IPYTHON[name]}"
    return ""


def _missing_input(end: str, text: str) -> str:
    if _READS in end:
        return f"A job has no input: give the program its values by %args or %input. {_BREAKPOINT}"
    # q at a prompt of breakpoint() raises the same, but that prompt is in no log.
    if _QUITS.search(end) and _PROMPT.search(text):
        return f"A job has no input, so a debugger gets no command. {_BREAKPOINT}"
    return ""


def _beside(name: str, folder: Path) -> bool:
    path = Path(name)
    with contextlib.suppress(OSError, ValueError):
        return not path.is_absolute() and ".." not in path.parts and (folder / path).exists()
    return False


def _send(name: str, job: Job) -> str:
    # `ciao run` starts a file, which may have no header to add a line to.
    if job.program.removeprefix(f"{job.workdir}/") in (CELL, TEXT):
        advice = f"a line %files={quote(name)}"
    else:
        advice = f"--files {quote(name)}, or a line #%files={quote(name)},"
    return f"{name} is next to your code; add {advice} to send it to the job."


def _keras(text: str) -> str:
    if "distribut" not in text.lower() or not _KERAS_3.search(text):
        return ""
    return f"Keras 3 does not train by `fit` under this strategy. Use Keras 2: {REMEDY}"


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
        return _DISK_FULL if full else ""
    with contextlib.suppress(OSError):
        # A full disk has no room for the traceback either.
        full = full or shutil.disk_usage(job.files).free < 1024 * 1024
    if full:
        return "The disk is full. `%ciao delete --finished` removes old jobs and their files."
    return ""


def _loss(one: ReplicaStatus, job: Job) -> str:
    if not was_taken_away(one, job) or "DeadlineExceeded" in one.reason:
        return ""
    if "exceed" in one.reason and "limit" in one.reason:  # its own use of disk
        return _DISK_FULL
    checkpoint = "" if has_checkpoint(job.header) else "%checkpoint keeps what the program saves"
    if job.retries:
        return checkpoint and f"{checkpoint}: the next start then goes on from there."
    again = "%retries=3 starts the job again after such a loss"
    return f"{again}, and {checkpoint} for that start." if checkpoint else f"{again}."


def _memory(cause: str, text: str, one: ReplicaStatus, failure: Failure) -> str:
    job = failure.job
    if "CUDA out of memory" in cause:
        return "The GPU ran out of memory: a smaller batch may fit."
    killed = one.exit_code == -signal.SIGKILL and not (job.on_cluster and one.reason)
    killed = killed or one.reason == "OOMKilled" or _KILLED_PROCESS.search(text) is not None
    if not killed and "MemoryError" not in cause:
        return ""
    if not job.on_cluster:
        return "The machine may have run out of memory: try fewer replicas, or smaller batches."
    if limit := memory_advice.memory_of(job, one.replica.role):
        more = memory_advice.times(limit, 2)
        return (killed and failure.after_kill(one.replica)) or (
            f"The limit of {one.replica} is %memory={limit}, and it used all of it: try "
            f"{f'%memory={more}' if more else 'a higher %memory'}, or smaller batches."
        )
    return (
        "There is no %memory, so a limit of the namespace or the node's memory applied: set "
        "%memory, or try smaller batches."
    )
