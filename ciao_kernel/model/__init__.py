"""The values that travel from one step of a cell to the next.

::

    text ─ magics.parse ─► JobSpec + code ─ workspace ─► Source ─ builder ─► Artifact
         ─ framework + backend ─► Job ─ follow ─► Event … ─► display

Each kind of value has a file here; everybody imports them from the package. Standard library
only, no I/O. The contracts of those who take and return these values are in
:mod:`ciao_kernel.plugins`.
"""

from ciao_kernel.model.artifact import Artifact, Manifest
from ciao_kernel.model.events import Event, Notice, Output
from ciao_kernel.model.job import Job, JobResult, Owner
from ciao_kernel.model.replica import Address, Replica
from ciao_kernel.model.source import Source, SourceFile
from ciao_kernel.model.spec import (
    BuildSpec,
    CleanPolicy,
    ClusterSpec,
    DryRun,
    Gpu,
    JobSpec,
    ReplicaGroup,
    Resources,
    RestartPolicy,
    Runner,
    SuccessPolicy,
)
from ciao_kernel.model.status import ReplicaStatus, State, Status, exit_text

__all__ = [
    "Address",
    "Artifact",
    "BuildSpec",
    "CleanPolicy",
    "ClusterSpec",
    "DryRun",
    "Event",
    "Gpu",
    "Job",
    "JobResult",
    "JobSpec",
    "Manifest",
    "Notice",
    "Output",
    "Owner",
    "Replica",
    "ReplicaGroup",
    "ReplicaStatus",
    "Resources",
    "RestartPolicy",
    "Runner",
    "Source",
    "SourceFile",
    "State",
    "Status",
    "SuccessPolicy",
    "exit_text",
]
