"""What plug-ins promise: frameworks, builders and backends, and the display that shows a job.

A third party's plug-in follows one of these protocols and brings an entry point
(``docs/extending.md``). Plug-ins know the values of :mod:`ciao_kernel.model` and nothing of
each other. Each contract has a file here; everybody imports them from the package.
"""

from ciao_kernel.plugins.backend import Backend, Plan
from ciao_kernel.plugins.builder import Build, Builder, Emit, PodEnd, Workshop
from ciao_kernel.plugins.display import Display
from ciao_kernel.plugins.framework import DEFAULT_CONTAINER, Framework, JobManifest

__all__ = [
    "DEFAULT_CONTAINER",
    "Backend",
    "Build",
    "Builder",
    "Display",
    "Emit",
    "Framework",
    "JobManifest",
    "Plan",
    "PodEnd",
    "Workshop",
]
