"""Values that are passed from one processing step of a cell to the next.

::

    text ─ magics.parse ─► JobSpec + code ─ delivery ─► Source ─ builder ─► Artifact
         ─ framework + backend ─► Job ─ follow ─► Event … ─► display

Each kind of value has its own module; import all of them from this package. Standard library
only, no I/O. :mod:`ciao_kernel.plugins` has the protocols of the plug-ins that take and return
these values.
"""

from ciao_kernel.model.artifact import Artifact, Manifest
from ciao_kernel.model.build_spec import BuildSpec
from ciao_kernel.model.checkpoint import Checkpoint
from ciao_kernel.model.cluster_spec import ApiName, ClusterSpec, RestartPolicy, SuccessPolicy
from ciao_kernel.model.events import Event, Notice, Output, Progress, TensorBoard, Unit
from ciao_kernel.model.job import Job, JobResult, Owner
from ciao_kernel.model.profile import Profile
from ciao_kernel.model.replica import Address, Replica
from ciao_kernel.model.source import Source, SourceFile
from ciao_kernel.model.spec import (
    ALL_LINES,
    CleanPolicy,
    DryRun,
    Gpu,
    JobSpec,
    ReplicaGroup,
    Resources,
    Runner,
)
from ciao_kernel.model.status import ReplicaStatus, State, Status, exit_text
from ciao_kernel.model.volume import Volume, VolumeKind

__all__ = [
    "ALL_LINES",
    "Address",
    "ApiName",
    "Artifact",
    "BuildSpec",
    "Checkpoint",
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
    "Profile",
    "Progress",
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
    "TensorBoard",
    "Unit",
    "Volume",
    "VolumeKind",
    "exit_text",
]
