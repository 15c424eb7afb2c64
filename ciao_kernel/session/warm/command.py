"""The command that starts a run in a replica."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ciao_kernel.delivery import checkpoints, volume_variables
from ciao_kernel.delivery.output import results
from ciao_kernel.model import Address, Replica
from ciao_kernel.plugins import Forkable
from ciao_kernel.session.warm.run import Run

_THREADS = "OMP_NUM_THREADS"


def command(
    run: Run, addresses: Mapping[Replica, Address], workdir: str, replica: Replica, *, here: bool
) -> dict[str, Any]:
    """Return the command for one replica, as its agent reads it.

    Args:
        run: The run.
        addresses: Host and free port of each replica.
        workdir: The agents' working directory, where volumes are.
        replica: The replica.
        here: Whether the replicas are on this machine.
    """
    spec, packed = run.plan.spec, run.packed
    framework = run.plan.framework
    assert isinstance(framework, Forkable)  # other ones are refused before
    own = framework.processes(spec, replica, addresses)
    place = run.job.workdir
    variables = volume_variables.variables(spec.seen_by(replica.role), place, run.plan.source)
    variables |= results.output_folder(spec, place) | dict(spec.env)
    environment = dict(packed.environment)
    defaults = {_THREADS: "1"} if len(own) > 1 else {}  # as torchrun does
    if defaults and _THREADS in variables:
        environment.setdefault(_THREADS, variables[_THREADS])
    # The folder of a run is shared here, and the first replica to unpack links for all of them.
    volumes = spec.all_volumes if here else spec.volumes_of(replica.role)
    folders = list(dict.fromkeys(one.where for one in volumes if not one.is_absolute))
    if spec.checkpoint is not None:
        folders.append(checkpoints.WHERE)
    return {
        "op": "run",
        "id": run.number,
        "tar": packed.archive,
        "program": packed.program,
        "arguments": list(spec.args),
        "processes": [{**one, **variables} for one in own],
        "environment": environment,
        "defaults": defaults,
        "links": [(where, f"{workdir}/{where}") for where in folders],
        "cold": bool(packed.doubt),
        "learn": packed.learns,
        "deadline": spec.deadline,
        "idle": spec.warm,
        "results": _results(run, replica, here=here),
        "files": run.files.asked(replica) if run.files is not None else {},
    }


def _results(run: Run, replica: Replica, *, here: bool) -> dict[str, str]:
    """Return the names of values to bring back, and their folder on this machine.

    Without a folder they come in the marker of the run's end.
    """
    if not (names := run.plan.spec.output_names):
        return {}
    place = results.folder(run.job.files, replica, run.number)
    return {"names": " ".join(names), "folder": str(place) if here else ""}
