"""Elastic PyTorch jobs: their limits, and torchrun with a rendezvous that survives lost replicas.

torchrun starts all processes again, with the replicas that are left, when one of them ends. Its
rendezvous does not survive everything: with the replica that holds the store, worker-0, all other
torchruns end, and some releases close the rendezvous for good when any replica is asked to end. So
the program here starts torchrun again in its own process when the rendezvous has ended, and exits
with 128 and more when it was itself asked to end. The operator and the local backend start such a
replica again (``ExitCode``), while a failure of the user's program, exit code 1, ends the job. With
``OnFailure`` a program that fails on every try would go on for minutes, in the kubelet's back-off.

Facts: torch 2.6 to 2.15, torch/distributed/launcher/api.py (``launch_agent``) and
elastic/rendezvous/{dynamic_rendezvous,c10d_rendezvous_backend}.py; training-operator release-1.9,
pkg/controller.v1/{pytorch/elastic,common/pod}.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ciao_kernel.delivery.output.result_writer import NAMES
from ciao_kernel.errors import SpecError
from ciao_kernel.frameworks import torchrun
from ciao_kernel.model import (
    Address,
    Artifact,
    JobSpec,
    Manifest,
    Replica,
    RestartPolicy,
    Runner,
)

HOST = Replica("worker", 0)
"""The replica that holds the store of the rendezvous."""
RESTARTS = 3
"""Restarts of the program, without %backoffLimit. Each costs the import of torch."""

_PROGRAM = f"""\
import os, runpy, shutil, signal, sys, time
from datetime import timedelta
{torchrun.BUFFER_LINES}
def end_by(number):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container ignores its own signals

def asked_to_end(number, frame):
    end_by(number)

def open_store():
    try:
        from torch.distributed import TCPStore
        return TCPStore(
            host.strip("[]"), int(port), is_master=is_host, timeout=timedelta(seconds=5),
            wait_for_workers=False, multi_tenant=True)
    except (ImportError, TypeError):
        raise
    except Exception:
        return None

def start_again(error):
    signal.signal(signal.SIGTERM, asked_to_end)  # torchrun has set its own
    replica = os.environ["CIAO_REPLICA"]
    print(f"torchrun of {{replica}} starts again: {{type(error).__name__}}", file=sys.stderr)
    sys.stderr.flush()
    if folder:
        shutil.rmtree(folder, True)
    time.sleep(3)  # a job that has failed is stopped meanwhile
    for name in os.listdir("/proc/self/fd"):
        try:
            os.set_inheritable(int(name), int(name) < 3)
        except OSError:
            pass  # that of the listing
    os.execv(sys.executable, sys.orig_argv)

def is_lost(error):
    # torchrun has no result, and says so by an AttributeError, if it left the rendezvous.
    name = type(error).__name__
    return name.startswith(("Rendezvous", "Dist")) or "is_failed" in str(error)

signal.signal(signal.SIGTERM, asked_to_end)
index = int(os.environ["CIAO_REPLICA"].rpartition("-")[2])
host, _, port = os.environ["PET_RDZV_ENDPOINT"].rpartition(":")
most = int(os.environ["PET_NNODES"].rpartition(":")[2])
is_host = index == 0
os.environ.setdefault("PET_RDZV_CONF", f"is_host={{int(is_host)}},last_call_timeout=5")
# In the shared store the processes would meet under their agents' numbers of failures. These differ
# if only one process has failed, and then all wait for ever.
os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
folder = buffer_lines() if os.environ.get("PET_NPROC_PER_NODE") != "1" else None
# Opened before torchrun's, which shares it, and closed after those of the other replicas.
store = open_store()
while store is None:
    time.sleep(0.2)
    store = open_store()
try:
    store.set(f"ciao/began/{{index}}", "1")
    runpy.run_module("{torchrun.MODULE}", run_name="__main__", alter_sys=True)
except Exception as error:
    if type(error).__name__ == "SignalException":
        end_by(int(error.sigval))
    if not is_lost(error):
        raise
    start_again(error)
finally:
    os.environ.pop("{NAMES}", None)  # the values are those of its processes
    if folder:
        shutil.rmtree(folder, True)

def runs(number):
    return store.check([f"ciao/began/{{number}}"]) and not store.check([f"ciao/ended/{{number}}"])

try:
    store.set(f"ciao/ended/{{index}}", "1")
    until = time.monotonic() + 10
    while is_host and any(map(runs, range(most))) and time.monotonic() < until:
        time.sleep(0.01)
except Exception:
    pass
"""
"""Runs in the replica, whose image has no ciao: torch 1.13 or newer and Python 3.10 or newer."""


def complete(spec: JobSpec) -> JobSpec:
    """Check the limits of an elastic job, and return the spec with its restart policy.

    Raises:
        SpecError: A directive does not fit to the limits.
    """
    count, low, high = spec.count("worker"), spec.min_workers, spec.max_workers
    named = "min" if low is not None else "max"
    if spec.count("master"):
        raise SpecError(
            "an elastic job has no master: its workers agree on their ranks.",
            "Leave out %master.",
            directive="master",
        )
    if not count:
        raise SpecError(
            f"%{named} makes the job elastic, which then needs workers.",
            "Add the number of workers at the start, for example %worker=3.",
            directive=named,
        )
    if low is not None and low > count:
        raise SpecError(
            f"the job would begin with {count} of at least {low} workers, and so never train.",
            f"Write %min={count} or less, or more workers.",
            directive="min",
        )
    if high is not None and high < count:
        raise SpecError(
            f"the job would begin with {count} of at most {high} workers.",
            f"Write %max={count} or more, or fewer workers.",
            directive="max",
        )
    if spec.runner is Runner.PYTHON:
        raise SpecError(
            "torchrun makes a job elastic; plain Python does not.",
            f"Leave out %runner, or leave out %{named}.",
            directive="runner",
        )
    if spec.cluster.restart_policy not in (None, RestartPolicy.EXIT_CODE):
        raise SpecError(
            "an elastic job has a rule of its own: a lost replica is started again, and a program "
            "that fails is not.",
            "Leave out %restartPolicy; %backoffLimit sets how often torchrun starts it again.",
            directive="restartPolicy",
        )
    cluster = replace(spec.cluster, restart_policy=RestartPolicy.EXIT_CODE)
    groups = tuple(group for group in spec.groups if group.role == "worker")
    return replace(spec, groups=groups, cluster=cluster)


def command(artifact: Artifact, spec: JobSpec) -> tuple[str, ...]:
    """Return the command of each replica; torchrun reads its options from ``PET_`` variables."""
    return (artifact.python, "-u", "-c", _PROGRAM, *artifact.program_words, *spec.args)


def environment(
    spec: JobSpec, replica: Replica, addresses: Mapping[Replica, Address], processes: int
) -> dict[str, str]:
    """Return the variables of a replica on this machine, where no replica can be added.

    Args:
        spec: Result of :func:`complete`.
        replica: The replica.
        addresses: Address of each replica.
        processes: Number of processes that torchrun starts in it.
    """
    return {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": str(addresses[HOST]),
        "PET_NNODES": f"{_least(spec)}:{len(addresses)}",
        "PET_MAX_RESTARTS": str(_restarts(spec)),
        "PET_NPROC_PER_NODE": str(processes),
        # Else torchrun offers the machine's own name to the other replicas.
        "PET_LOCAL_ADDR": addresses[replica].host,
    }


def policy(spec: JobSpec) -> Manifest:
    """Return the ``elasticPolicy`` of a PyTorchJob."""
    return {
        "rdzvBackend": "c10d",
        "minReplicas": _least(spec),
        "maxReplicas": spec.max_workers or spec.count("worker"),
        "maxRestarts": _restarts(spec),
    }


def _least(spec: JobSpec) -> int:
    return spec.min_workers or 1


def _restarts(spec: JobSpec) -> int:
    limit = spec.cluster.backoff_limit
    return RESTARTS if limit is None else limit
