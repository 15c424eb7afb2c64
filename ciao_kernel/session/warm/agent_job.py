"""The job of warm replicas: each runs the agent in place of a program."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from ciao_kernel.config import Settings
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.warm import sending
from ciao_kernel.model.outputs import OUTPUT_FOLDER
from ciao_kernel.plugins import Plan
from ciao_kernel.session.warm import framework
from ciao_kernel.session.warm.found_runs import ROOT


@dataclass(frozen=True, slots=True)
class Leases:
    """Seconds without a word of the kernel after which replicas end."""

    idle: float
    run: float
    """Those seconds while a run is in the replicas."""


def plan(
    first: Plan,
    packed: sending.Packed,
    nonce: str,
    settings: Settings,
    leases: Leases,
    *,
    here: bool,
) -> Plan:
    """Return the plan of the job.

    Args:
        first: The plan of its first run.
        packed: The program of that run.
        nonce: Distinguishes the markers of the job.
        settings: Grace periods and limits.
        leases: When the replicas end.
        here: Whether they run on this machine, where the folders of runs are kept.
    """
    config = {
        "nonce": nonce,
        # Until the first run others may still wait for a node; each run brings its own time.
        "idle": settings.warm_most,
        "lease": leases.idle,
        "runLease": leases.run,
        "grace": settings.grace(first.spec.grace),
        "keep": here,
        "oom": not here,
        "root": "" if here else ROOT,
        "host": "127.0.0.1" if here else "",
        "preload": packed.modules,
        "environment": packed.environment,
    }
    spec = replace(
        first.spec,
        args=(),
        files=(),
        inputs=(),
        outputs=(),
        env=(("CIAO_WARM", json.dumps(config, separators=(",", ":"))),),
        deadline=int(settings.warm_most),
    )
    # Forks of a process with the handler have it too. A later run may have values and files.
    source = replace(sending.agent(), own=first.source.own)
    wanted = ("value",) if here else ("value", OUTPUT_FOLDER)
    source = results.with_files(source, replace(first.spec, outputs=wanted))
    return replace(first, spec=spec, framework=framework.warm(first.framework), source=source)
