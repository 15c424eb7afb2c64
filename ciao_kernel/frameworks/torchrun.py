"""The call of torchrun in a replica, with an orderly end of jobs of several replicas.

torchrun of the master holds the store through which all torchruns agree that the job is over
(torch/distributed/elastic/agent/server/api.py, ``_exit_barrier``). It ends, and so closes the
store, as soon as it knows. The others may still be waiting for their answer then: each of them
writes a traceback of DistNetworkError into the log of a job that has succeeded. torchrun has no
option for that, so the master's store is opened here, before torchrun, which shares it, and is
closed when the other replicas have said that their torchrun has ended.

torchrun ends with 1 whatever ended its processes. But ``ExitCode`` restarts a replica only after a
code of 128 or more, and on this machine ``%retries`` starts a job again whose replica was killed.
So the program here ends as the first process that failed. If torchrun has seen that one killed, it
does so even if it is told to end while torchrun still ends the others: another replica may fail
meanwhile. torchrun looks ten times a second, also in releases in which it looked every five.

Several processes of a replica write to one pipe. Without buffers, as PYTHONUNBUFFERED and ``-u``
ask for, ``print("loss", 1)`` is four writes, and the lines of two processes get mixed. So their
streams are buffered by line: a line is one write, and a pipe keeps up to 4096 bytes of a write
together (pipe(7), PIPE_BUF). Each line, and each state of a progress bar, begins with the number of
its process, ``LOCAL_RANK``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ciao_kernel.delivery.output.result_writer import NAMES
from ciao_kernel.delivery.warm import zygote

MODULE = "torch.distributed.run"

_LINES = (
    Path(zygote.__file__).with_name("marked_lines.py").read_text(encoding="utf-8")
    + r"""

from importlib import machinery, util

# Not in its children, whose output the program may read.
of_torchrun = os.environ.get("CIAO_TORCHRUN") == str(os.getppid())
try:
    same = os.path.sameopenfile(1, 2)
except OSError:
    same = False
last: list[_Marked] = []
for name in ("stdout", "stderr"):
    stream = getattr(sys, name)
    try:
        stream.reconfigure(line_buffering=True, write_through=False)
        if of_torchrun:
            marked = _Marked(stream, last if same else [])
            if getattr(sys, f"__{name}__") is stream:
                setattr(sys, f"__{name}__", marked)  # it stays, and a program may restore it
            setattr(sys, name, marked)
    except Exception:
        pass  # somebody has replaced it
others = [folder for folder in sys.path if folder != __file__.rpartition("/")[0]]
found = machinery.PathFinder.find_spec("sitecustomize", others)
if found is not None:
    sys.path[:] = others  # it may import a third one
    sys.modules["sitecustomize"] = hidden = util.module_from_spec(found)
    found.loader.exec_module(hidden)
"""
)
"""A ``sitecustomize``, which each process runs at its start; the environment's own one runs too.

It begins with :mod:`~ciao_kernel.delivery.warm.zygote.marked_lines`. Only what Python writes is
marked, not what a library in C writes."""

BUFFER_LINES = f"""
import tempfile

def buffer_lines():
    try:
        folder = tempfile.mkdtemp(prefix="ciao-")
        with open(folder + "/sitecustomize.py", "w") as file:
            file.write({_LINES!r})
    except OSError:
        return None  # no folder is writable
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder + (":" + before if before else "")
    os.environ["CIAO_TORCHRUN"] = str(os.getpid())
    return folder
"""
"""Part of a program that starts torchrun: lets the processes of torchrun buffer and mark lines."""

_PROGRAM = f"""\
import os, runpy, shutil, signal, sys, time
from datetime import timedelta
{BUFFER_LINES}
def open_store(patience):
    try:
        from torch.distributed import TCPStore
        return TCPStore(
            os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]), is_master=is_master,
            timeout=timedelta(seconds=patience), wait_for_workers=False, multi_tenant=True)
    except Exception:
        return None  # torchrun reports what is wrong

replicas = int(os.environ.get("PET_NNODES") or 1)
processes = os.environ.get("PET_NPROC_PER_NODE")
if sys.argv[1].startswith("--nproc-per-node="):
    processes = sys.argv[1].partition("=")[2]
def first_failure(error):
    # Of the processes that had ended before torchrun got a signal; 0 if none had failed.
    trace = error.__traceback__
    while trace is not None:
        context = getattr(trace.tb_frame.f_locals.get("self"), "_pcontext", None)
        failures = getattr(context, "_failures", None)
        if failures:
            return min(failures.values(), key=lambda one: one.timestamp).exitcode
        trace = trace.tb_next
    return 0

def end_as(error):
    # As the process that failed first: torchrun itself would hide its signal behind a 1.
    code = 1
    try:
        if type(error).__name__ == "SignalException":
            code = -int(error.sigval)
            if first_failure(error) == -signal.SIGKILL:
                code = -signal.SIGKILL  # the signal came while torchrun was ending the others
        elif type(error).__name__ == "ChildFailedError":
            code = error.get_first_failure()[1].exitcode
    except Exception:
        pass
    sys.stdout.flush()
    sys.stderr.flush()
    if code in (-signal.SIGKILL, -signal.SIGTERM):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        os._exit(128 - code)  # the first process of a container ignores its own signals
    sys.exit(128 - code if code < 0 else code if code >= 128 else 1)

folder = buffer_lines() if processes != "1" else None
is_master = os.environ.get("PET_NODE_RANK") == "0"
store = open_store(600) if replicas > 1 and is_master else None
# Nodes may be made for the other replicas, which takes longer than torch's fifteen minutes.
os.environ.setdefault("PET_RDZV_CONF", "timeout=3600")
os.environ.setdefault("PET_MONITOR_INTERVAL", "0.1")
failure = None
try:
    runpy.run_module("{MODULE}", run_name="__main__", alter_sys=True)
except Exception as error:
    failure = error
    sys.excepthook(type(error), error, error.__traceback__)
finally:
    os.environ.pop("{NAMES}", None)  # the values are those of its processes
    if folder:
        shutil.rmtree(folder, True)
if failure is not None:
    end_as(failure)
signal.signal(signal.SIGTERM, signal.SIG_DFL)  # torchrun writes a traceback
# The store of the master stays open until all torchruns have ended, at most 10 seconds.
if replicas > 1:
    try:
        until = time.monotonic() + 10
        store = store or open_store(10)
        ended = store.add("ciao/ended", 1)
        while is_master and ended < replicas and time.monotonic() < until:
            time.sleep(0.01)
            ended = store.add("ciao/ended", 0)
    except Exception:
        pass
"""
"""Runs in the replica, whose image has no ciao. It uses the public API of torch (since 1.12),
except in ``first_failure``, and torchrun works as without it if any step fails. After a failure of
torchrun nothing waits."""


def command(python: str, program: Sequence[str], arguments: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command of each replica; torchrun reads its options from ``PET_`` variables.

    Args:
        python: The replica's interpreter.
        program: The program that torchrun starts: its path, or ``-m`` and its name.
        arguments: The program's arguments.
    """
    return (python, "-u", "-c", _PROGRAM, *program, *arguments)


def with_option(command: Sequence[str], option: str) -> list[str]:
    """Add an option, which overrides the variable; a command without torchrun is unchanged."""
    found = list(command)
    if _PROGRAM in found:
        found.insert(found.index(_PROGRAM) + 1, option)
    return found


def processes(own: Mapping[str, str], every: Iterable[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the variables that torchrun would give each process of a replica.

    It would start new interpreters; a parent that forks these processes needs their variables.

    Args:
        own: The variables of the replica, from which torchrun would read its options.
        every: Those of all replicas of the job.
    """
    counts = {int(one["PET_NODE_RANK"]): int(one["PET_NPROC_PER_NODE"]) for one in every}
    node = int(own["PET_NODE_RANK"])
    before = sum(count for rank, count in counts.items() if rank < node)
    common = {
        "MASTER_ADDR": own["MASTER_ADDR"],
        "MASTER_PORT": own["MASTER_PORT"],
        "WORLD_SIZE": str(sum(counts.values())),
        "ROLE_WORLD_SIZE": str(sum(counts.values())),
        "LOCAL_WORLD_SIZE": str(counts[node]),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(counts)),
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": f"ciao-{own['MASTER_PORT']}",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }
    return [
        {
            **common,
            "RANK": str(before + local),
            "ROLE_RANK": str(before + local),
            "LOCAL_RANK": str(local),
        }
        for local in range(counts[node])
    ]
