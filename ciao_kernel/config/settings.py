"""All settings: their names, types, built-in values and help."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ciao_kernel.config.place_types import (
    BucketAddress,
    CheckpointSetting,
    ClaimSetting,
    Folder,
    Folders,
    JobVolumes,
    VolumeFolders,
)
from ciao_kernel.config.setting_types import (
    CpuRequest,
    Hosts,
    Images,
    Number,
    OrNothing,
    PortAddress,
    Text,
    one_of,
    read,
    shown,
)
from ciao_kernel.config.storage import OwnFolder, own_folder
from ciao_kernel.errors import SettingError
from ciao_kernel.home_folder import home
from ciao_kernel.magics.directives.cell_lines import DEFAULT_LINES, LineCount
from ciao_kernel.magics.directives.cluster import Name
from ciao_kernel.magics.directives.images import Repository
from ciao_kernel.magics.numeric_types import Cpus, Memory
from ciao_kernel.magics.spelling import key
from ciao_kernel.magics.value_types import Kind
from ciao_kernel.model import ApiName, CleanPolicy, Volume
from ciao_kernel.redaction import mask
from ciao_kernel.user_path import expanded

KANIKO = "ghcr.io/osscontainertools/kaniko:v1.28.3"
"""The executor of the maintained fork (https://github.com/osscontainertools/kaniko: README.md names
the image, CHANGELOG.md the release), for amd64, arm64, ppc64le, riscv64 and s390x. The project that
it continues, GoogleContainerTools/kaniko, was archived in June 2025.

The test cluster runs the last release of that project, v1.24.0, because it builds the executor from
Go modules and has no checksums of the fork's modules. The options of both are the same."""


def _state_home() -> Path:
    named = os.environ.get("XDG_STATE_HOME")
    return (Path(named) if named else home() / ".local" / "state") / "ciao"


def _setting(default: Any, kind: Kind, text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings. ``origins`` has the place of each setting that is not built-in."""

    backend: str = _setting("auto", Text(), "Where jobs run: auto, local or kubernetes.")
    builder: str = _setting("auto", Text(), "Builder of the code: auto, or its name.")
    framework: str = _setting("", Text(), "Framework for jobs without %framework.")
    python: str = _setting("", Text(), "Interpreter of local replicas; empty: the kernel's.")
    clean_policy: CleanPolicy = field(
        default=CleanPolicy.RUNNING,
        metadata={
            "kind": one_of(*(policy.value for policy in CleanPolicy), convert=CleanPolicy),
            "help": "What is removed when a job is over, for jobs without %cleanPolicy.",
        },
    )
    on_shutdown: str = _setting(
        "auto",
        one_of("auto", "leave", "delete"),
        "What happens to a followed job when its kernel ends; auto: local jobs end, others stay.",
    )
    storage: Path = field(
        default_factory=_state_home,
        metadata={"kind": Folder(), "help": "Folder of local jobs: their files and logs."},
    )
    stop_grace: float = _setting(
        5.0, Number(0, "seconds"), "Time from SIGTERM to SIGKILL when a replica is stopped."
    )
    linger: float = _setting(
        1.0,
        Number(0, "seconds"),
        "Time for other workers to end by themselves after the job has succeeded; "
        "on a cluster also after it has failed.",
    )
    warm_most: float = _setting(
        28_800.0,
        Number(60, "seconds"),
        "Longest life of replicas that %warm keeps, whatever runs in them.",
    )
    shutdown_wait: float = _setting(
        0.6,
        Number(0, "seconds"),
        "Time from an interrupt until the job is stopped; a shutdown in this time keeps the job.",
    )
    local_replicas: float = _setting(
        128.0, Number(1, "replicas"), "Largest number of replicas of a local job."
    )
    local_network: str = _setting(
        "host",
        one_of("host", "isolated"),
        "Network of local jobs; isolated: each job has its own, which reaches nothing outside.",
    )
    context: str = _setting("", Text(), "Context of the kubeconfig; empty: the current context.")
    namespace: str = _setting("", OrNothing(Name()), "Namespace of jobs; empty: the context's.")
    api: ApiName = field(
        default=ApiName.AUTO,
        metadata={
            "kind": one_of(*(name.value for name in ApiName), convert=ApiName),
            "help": "Kind of object that runs a job on a cluster, for jobs without %api.",
        },
    )
    queue: str = _setting("", Text(), "Queue of Kueue for jobs without %queue.")
    gang_scheduler: str = _setting(
        "",
        Text(),
        "Scheduler that starts all replicas of a job together: volcano, or the name of one with "
        "the coscheduling plug-in; empty: the cluster's own.",
    )
    gang_queue: str = _setting("", Text(), "Queue of Volcano, if that is the gangScheduler.")
    images: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"kind": Images(), "help": "Image of a framework's replicas on a cluster."},
    )
    volumes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "kind": VolumeFolders(),
            "help": "Folder of this machine for a claim or an NFS export of %volume.",
        },
    )
    job_volumes: tuple[Volume, ...] = _setting(
        (), JobVolumes(), "Volumes of all jobs, but for those that have something else there."
    )
    host_folders: tuple[str, ...] = _setting(
        (), Folders(), "Folders of nodes that %volume=host:/PATH may mount, each with all in it."
    )
    checkpoint: str = _setting(
        "",
        CheckpointSetting(),
        "Place of checkpoints for jobs with %checkpoint alone: a claim, or a folder of this "
        "machine; empty: on this machine a folder in the storage.",
    )
    cpu_request: str = _setting(
        "100m",
        CpuRequest(),
        "CPU request of a replica on a cluster, for jobs without %cpu; never a limit.",
    )
    cluster_python: str = _setting("python3", Text(), "Python interpreter in the replicas' image.")
    ttl: float = _setting(
        86_400.0, Number(0, "seconds"), "Time that a finished job stays on the cluster."
    )
    request_patience: float = _setting(
        30.0,
        Number(0, "seconds"),
        "Time for which a request is repeated while the API server does not answer.",
    )
    follow_patience: float = _setting(
        600.0,
        Number(1, "seconds"),
        "Time after which a job is no longer followed if the API server does not answer, or "
        "refuses the credentials.",
    )
    hopeless_wait: float = _setting(
        60.0,
        Number(0, "seconds"),
        "Time after which a replica that cannot start (image or Secret missing) fails the job.",
    )
    architecture: str = _setting(
        "",
        OrNothing(one_of("amd64", "arm64", "arm", "ppc64le", "riscv64", "s390x", "loong64")),
        "Architecture of nodes, for images: amd64, arm64; empty: that of the cluster's nodes if "
        "they may be listed, else amd64.",
    )
    registry: str = _setting(
        "",
        OrNothing(Repository()),
        "Repository for the images of jobs: HOST/PATH.",
    )
    plain_registries: tuple[str, ...] = _setting(
        (), Hosts(), "Registries that use http; all others must use https."
    )
    registry_authority: str = _setting(
        "", Text(), "File with the certificate of the authority of a private registry."
    )
    push_secret: str = _setting(
        "", OrNothing(Name()), "Secret with registry passwords, for jobs without %pushSecret."
    )
    pip_secret: str = _setting(
        "",
        OrNothing(Name()),
        "Secret with a pip.conf for pods that build images, for jobs without %pipSecret.",
    )
    s2i_builder: str = _setting(
        "", Text(), "Builder image of source-to-image, for jobs without %s2iBuilder."
    )
    kaniko_image: str = _setting(KANIKO, Text(), "Image of pods that build images.")
    build_deadline: float = _setting(
        3600.0, Number(1, "seconds"), "Time after which a pod that builds an image is stopped."
    )
    build_cpu: str = _setting(
        "",
        OrNothing(Cpus()),
        "Processors for a pod that builds an image: 2; empty: no request and no limit.",
    )
    build_memory: str = _setting(
        "",
        OrNothing(Memory()),
        "Memory for a pod that builds an image: 4Gi; empty: no request and no limit.",
    )
    cache_days: float = _setting(
        30.0,
        Number(1, "days"),
        "Time without use after which packages are removed from the folder of local jobs.",
    )
    inspect: str = _setting(
        "on",
        one_of("on", "off"),
        "Whether `ciao stacks` and breakpoint() look into replicas, for jobs without %inspect.",
    )
    silence: float = _setting(
        300.0,
        Number(0, "seconds"),
        "Time without a line of any replica after which ciao shows where they stand; 0: never.",
    )
    debug_wait: float = _setting(
        600.0,
        Number(1, "seconds"),
        "Time after which a replica that `ciao debug` has stopped goes on, if nobody is at its "
        "prompt.",
    )
    color: str = _setting(
        "auto",
        one_of("auto", "always", "never"),
        "Colours in output; auto: in notebooks, and in a terminal unless NO_COLOR is set.",
    )
    lines: int = _setting(
        DEFAULT_LINES,
        LineCount(),
        "First and last lines of each replica that a notebook keeps, for jobs without %lines.",
    )
    usage: str = _setting(
        "off",
        one_of("on", "off"),
        "Whether the table shows the processors, memory and GPUs that replicas use, for jobs "
        "without %usage.",
    )
    output_rate: float = _setting(
        800_000.0,
        Number(1000, "bytes"),
        "Log bytes per second that a cell shows; Jupyter Server's own limit is 1,000,000.",
    )
    output_limit: float = _setting(
        20_000_000.0, Number(1000, "bytes"), "Log bytes that a cell shows in total."
    )
    line_limit: float = _setting(
        10_000.0, Number(80, "characters"), "Characters of one log line that a cell shows."
    )
    tensorboard_url: str = _setting(
        "",
        PortAddress(),
        "Address at which a browser reaches a port of the kernel's machine, for %tensorboard: "
        "/user/ada/proxy/%PORT%/; empty: that of the Jupyter server's proxy, if it has one.",
    )
    fetch_wait: float = _setting(
        60.0,
        Number(1, "seconds"),
        "Time for which a pod stays after its program's end until somebody fetches the files of "
        "%output.",
    )
    fetch_limit: float = _setting(
        10_000_000_000.0,
        Number(1000, "bytes"),
        "Bytes of files that come back from one replica on a cluster.",
    )
    output_store: str = _setting(
        "",
        BucketAddress(),
        "Bucket by which files of %output come back from a cluster; its credentials stay with the "
        "kernel.",
    )
    output_claim: str = _setting(
        "",
        ClaimSetting(),
        "Claim by which files of %output come back from a cluster, for jobs with by:claim; empty: "
        "that of %checkpoint or %volume.",
    )
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def own_storage(self) -> Path:
        """This user's folder in :attr:`storage`, see :mod:`ciao_kernel.config.storage`."""
        return self.own_folder.path

    @property
    def own_folder(self) -> OwnFolder:
        """The same, with the reason if it is not :attr:`storage` itself."""
        return own_folder(self.storage, private=self.storage == _state_home())

    @property
    def authority_file(self) -> Path | None:
        """The file of :attr:`registry_authority`; None without one.

        Raises:
            UsageError: It begins with ``~``, and there is no such home folder.
        """
        named = self.registry_authority
        return expanded(named, "registryAuthority") if named else None

    def grace(self, own: float | None) -> float:
        """Return the seconds from SIGTERM to SIGKILL for a job.

        Args:
            own: Those of its ``%grace``; None without it.
        """
        return self.stop_grace if own is None else own

    def with_values(self, values: Mapping[str, Any], origin: str) -> Settings:
        """Return a copy with some settings changed; ``origin`` names their place for the user.

        Raises:
            SettingError: A name or a value is wrong; the message names ``origin``.
        """
        changed: dict[str, Any] = {}
        for name, value in values.items():
            setting = _field(name, origin)
            try:
                changed[setting.name] = read(setting.metadata["kind"], value)
            except ValueError as error:
                raise SettingError(
                    f"{origin}: {shown_name(setting.name)} cannot be {mask(shown(value))}: "
                    f"expected {error}.",
                    "`%ciao config` shows all settings.",
                ) from None
        origins = {**self.origins, **dict.fromkeys(changed, origin)}
        return replace(self, **changed, origins=origins)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return name, value, origin and help of every setting."""
        return [
            (
                shown_name(setting.name),
                setting.metadata["kind"].render(getattr(self, setting.name)),
                self.origins.get(setting.name, "built-in"),
                setting.metadata["help"],
            )
            for setting in _settings()
        ]


def shown_name(name: str) -> str:
    """Return a name as users write it: ``onShutdown`` for ``on_shutdown``."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def names() -> list[str]:
    """Return the field names of all settings."""
    return [setting.name for setting in _settings()]


def _settings() -> list[Field[Any]]:
    return [setting for setting in fields(Settings) if "kind" in setting.metadata]


def _field(name: str, origin: str) -> Field[Any]:
    by_key = {key(setting.name): setting for setting in _settings()}
    if setting := by_key.get(key(name)):
        return setting
    near = difflib.get_close_matches(key(name), by_key, n=1)
    hint = f"Did you mean {shown_name(by_key[near[0]].name)}? " if near else ""
    raise SettingError(
        f"{origin}: unknown setting {name!r}.", hint + "`%ciao config` shows all settings."
    )
