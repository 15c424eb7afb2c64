"""All settings: their names, kinds, built-in values and help."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ciao_kernel.config.setting_types import Folder, Hosts, Images, Number, Text, one_of
from ciao_kernel.errors import SettingError
from ciao_kernel.magics.table import key
from ciao_kernel.magics.value_types import Kind
from ciao_kernel.model import CleanPolicy

KANIKO = (
    "gcr.io/kaniko-project/executor:v1.24.0"
    "@sha256:4e7a52dd1f14872430652bb3b027405b8dfd17c4538751c620ac005741ef9698"
)
"""The executor by its digest (an index: amd64, arm64, s390x, ppc64le); the version that the tests
run. Whoever builds with it trusts it with the passwords of registries."""


def _state_home() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "ciao"


def _setting(default: Any, kind: Kind, text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings. ``origins`` says where each that is not built-in was set."""

    backend: str = _setting("auto", Text(), "Where jobs run if a cell does not say.")
    builder: str = _setting("auto", Text(), "How code travels if a cell does not say.")
    framework: str = _setting("", Text(), "Framework of cells that name none.")
    python: str = _setting("", Text(), "Interpreter of local replicas; empty: the kernel's.")
    clean_policy: CleanPolicy = field(
        default=CleanPolicy.RUNNING,
        metadata={
            "kind": one_of(*(policy.value for policy in CleanPolicy), convert=CleanPolicy),
            "help": "What goes when a job is over.",
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
        5.0, Number(0, "seconds"), "From SIGTERM to SIGKILL when a replica is stopped."
    )
    linger: float = _setting(
        1.0,
        Number(0, "seconds"),
        "Time that other workers get to end by themselves once the job has succeeded; "
        "on a cluster also once it has failed.",
    )
    shutdown_wait: float = _setting(
        0.6,
        Number(0, "seconds"),
        "Time after an interrupt in which a shutdown may still follow and save the job.",
    )
    local_replicas: float = _setting(
        128.0, Number(1, "replicas"), "How many replicas a local job may have."
    )
    context: str = _setting("", Text(), "Context of the kubeconfig; empty: its current one.")
    namespace: str = _setting("", Text(), "Namespace of jobs; empty: the context's.")
    images: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"kind": Images(), "help": "Image of a framework's replicas on a cluster."},
    )
    cluster_python: str = _setting("python3", Text(), "Interpreter of the replicas in their image.")
    ttl: float = _setting(
        86_400.0, Number(0, "seconds"), "Time that a finished job stays on the cluster."
    )
    request_patience: float = _setting(
        30.0, Number(0, "seconds"), "Time for which an API server that is away is asked again."
    )
    follow_patience: float = _setting(
        600.0,
        Number(1, "seconds"),
        "Time that an API server may be away before a cell stops following its job.",
    )
    hopeless_wait: float = _setting(
        60.0,
        Number(0, "seconds"),
        "Time after which a replica that cannot start (no image, no such Secret) fails the job.",
    )
    architecture: str = _setting(
        "amd64", Text(), "Of the cluster's nodes, for images: amd64, arm64."
    )
    registry: str = _setting("", Text(), "Repository that gets the images of cells: HOST/PATH.")
    plain_registries: tuple[str, ...] = _setting(
        (), Hosts(), "Registries that speak http; with all others https is a must."
    )
    registry_authority: str = _setting(
        "", Text(), "File of the certificate that signs that of a private registry."
    )
    push_secret: str = _setting(
        "", Text(), "Secret with registries' passwords if a cell names no %pushSecret."
    )
    pip_secret: str = _setting(
        "",
        Text(),
        "Secret with a pip.conf for pods that build, if a cell names no %pipSecret.",
    )
    s2i_builder: str = _setting(
        "", Text(), "Builder image of source-to-image if a cell names no %s2iBuilder."
    )
    kaniko_image: str = _setting(KANIKO, Text(), "Image of pods that build images.")
    build_deadline: float = _setting(
        3600.0, Number(1, "seconds"), "Time after which a pod that builds an image is ended."
    )
    build_cpu: str = _setting(
        "", Text(), "Processors for a pod that builds an image: 2; empty: as they come."
    )
    build_memory: str = _setting(
        "", Text(), "Memory for a pod that builds an image: 4Gi; empty: as it comes."
    )
    cache_days: float = _setting(
        30.0,
        Number(1, "days"),
        "Time after which packages that no cell has used go from the folder of local jobs.",
    )
    color: str = _setting("auto", one_of("auto", "always", "never"), "Colours in output.")
    output_rate: float = _setting(
        800_000.0,
        Number(1000, "bytes"),
        "Log bytes a second that a cell shows; Jupyter Server's own limit is 1,000,000.",
    )
    output_limit: float = _setting(
        20_000_000.0, Number(1000, "bytes"), "Log bytes that a cell shows in all."
    )
    line_limit: float = _setting(
        10_000.0, Number(80, "characters"), "Characters of one log line that a cell shows."
    )
    origins: Mapping[str, str] = field(default_factory=dict)

    def with_values(self, values: Mapping[str, Any], origin: str) -> Settings:
        """Return settings with some changed; ``origin`` names the place for the user.

        Raises:
            SettingError: A name or a value is wrong; the message names ``origin``.
        """
        changed: dict[str, Any] = {}
        for name, value in values.items():
            known = _field(name, origin)
            text = value if isinstance(value, str) else str(value)
            try:
                if not isinstance(value, str | int | float):
                    raise ValueError("a text or a number")
                changed[known.name] = known.metadata["kind"].parse(text)
            except ValueError as error:
                raise SettingError(
                    f"{origin}: {shown_name(known.name)} cannot be {text!r}: {error} was expected.",
                    "`%ciao config` shows all settings.",
                ) from None
        origins = {**self.origins, **dict.fromkeys(changed, origin)}
        return replace(self, **changed, origins=origins)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name, value, origin and help of every setting."""
        return [
            (
                shown_name(known.name),
                known.metadata["kind"].render(getattr(self, known.name)),
                self.origins.get(known.name, "built-in"),
                known.metadata["help"],
            )
            for known in _settings()
        ]


def shown_name(name: str) -> str:
    """``on_shutdown`` as users write it: ``onShutdown``."""
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def names() -> list[str]:
    """Every setting, as its field is called."""
    return [known.name for known in _settings()]


def _settings() -> list[Field[Any]]:
    return [known for known in fields(Settings) if "kind" in known.metadata]


def _field(name: str, origin: str) -> Field[Any]:
    by_key = {key(known.name): known for known in _settings()}
    if known := by_key.get(key(name)):
        return known
    near = difflib.get_close_matches(key(name), by_key, n=1)
    hint = f"Did you mean {shown_name(by_key[near[0]].name)}? " if near else ""
    raise SettingError(
        f"{origin}: unknown setting {name!r}.", hint + "`%ciao config` shows all settings."
    )
