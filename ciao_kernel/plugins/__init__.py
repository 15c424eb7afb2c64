"""Protocols of plug-ins: frameworks, builders and backends, and the display that shows a job.

A third-party plug-in implements one of these protocols and declares an entry point
(``docs/extending.md``). Plug-ins depend on the values of :mod:`ciao_kernel.model`, never on each
other. Each protocol has its own module; import all of them from this package.
"""

from ciao_kernel.plugins.backend import Backend, Plan
from ciao_kernel.plugins.builder import Build, BuildCluster, Builder, Emit, PodResult
from ciao_kernel.plugins.console import Console, Elsewhere, PromptClosed
from ciao_kernel.plugins.display import Display
from ciao_kernel.plugins.framework import (
    DEFAULT_CONTAINER,
    OPTIONAL_FRAMEWORK_PARTS,
    AnyLanguage,
    Forkable,
    Framework,
    JobManifest,
    Launching,
    OperatorKind,
    Refusing,
    Serving,
    StartedBySsh,
    endless_roles,
    replica_command,
)
from ciao_kernel.plugins.optional_parts import (
    OPTIONAL_BACKEND_PARTS,
    Debugging,
    Feeding,
    Inspecting,
    LackingVolumes,
    LimitingMemory,
    Measuring,
    Profiling,
    Returning,
    Sending,
    SentFiles,
    Streaming,
    Suspending,
    WayBack,
)
from ciao_kernel.plugins.step import Step

__all__ = [
    "DEFAULT_CONTAINER",
    "OPTIONAL_BACKEND_PARTS",
    "OPTIONAL_FRAMEWORK_PARTS",
    "AnyLanguage",
    "Backend",
    "Build",
    "BuildCluster",
    "Builder",
    "Console",
    "Debugging",
    "Display",
    "Elsewhere",
    "Emit",
    "Feeding",
    "Forkable",
    "Framework",
    "Inspecting",
    "JobManifest",
    "LackingVolumes",
    "Launching",
    "LimitingMemory",
    "Measuring",
    "OperatorKind",
    "Plan",
    "PodResult",
    "Profiling",
    "PromptClosed",
    "Refusing",
    "Returning",
    "Sending",
    "SentFiles",
    "Serving",
    "StartedBySsh",
    "Step",
    "Streaming",
    "Suspending",
    "WayBack",
    "endless_roles",
    "replica_command",
]
