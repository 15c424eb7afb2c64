"""Settings: what a user, an administrator or a kernel sets once, for all cells.

Each place overrides the one before: built-in, ``/etc/ciao/config.toml``,
``~/.config/ciao/config.toml``, ``CIAO_*`` variables, ``%ciao config key=value``. A cell's
directives come last. Names are compared as directives' names are: ``onShutdown`` is
``on-shutdown`` is ``CIAO_ON_SHUTDOWN``.
"""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ciao_kernel.errors import SettingError
from ciao_kernel.magics import kinds
from ciao_kernel.magics.table import key
from ciao_kernel.model import CleanPolicy

# A setting's text is its value as it stands: a file, a variable or the command line has taken
# its quotes off already. So words with blanks in them, such as paths, need no second pair.


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder; ``~`` is the user's home."""

    expected: str = "the path of a folder"

    def parse(self, text: str) -> Path:
        try:
            path = Path(text.strip()).expanduser()
        except RuntimeError:
            raise ValueError(f"{self.expected} (nobody has that name)") from None
        if not text.strip() or not text.isprintable():
            raise ValueError(self.expected)
        return path.absolute()

    def render(self, value: Path) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class _Optional:
    """One line of text, or nothing."""

    expected: str = "one line of text, or nothing"

    def parse(self, text: str) -> str:
        if not text.isprintable():
            raise ValueError(self.expected)
        return text.strip()

    def render(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class _Number:
    """A number from ``low`` up."""

    low: float
    unit: str

    @property
    def expected(self) -> str:
        return f"a number of {self.unit} from {self.low:g} up"

    def parse(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(self.expected) from None
        if not self.low <= value < 1e12:
            raise ValueError(self.expected)
        return value

    def render(self, value: float) -> str:
        return str(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True, slots=True)
class _Images:
    """An image for each framework."""

    expected: str = "FRAMEWORK=IMAGE, several with spaces between"

    def parse(self, text: str) -> Mapping[str, str]:
        pairs = [word.partition("=") for word in text.split()]
        if not all(name and image for name, _, image in pairs):
            raise ValueError(self.expected)
        return {name.lower(): image for name, _, image in pairs}

    def render(self, value: Mapping[str, str]) -> str:
        return " ".join(f"{name}={image}" for name, image in value.items())


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Hosts, each with its port if it has one."""

    expected: str = "HOST or HOST:PORT, several with spaces between"

    def parse(self, text: str) -> tuple[str, ...]:
        found = tuple(text.split())
        if any("/" in host or not host.isprintable() for host in found):
            raise ValueError(self.expected)
        return found

    def render(self, value: tuple[str, ...]) -> str:
        return " ".join(value)


def _names(*names: str) -> kinds.Choice:
    return kinds.Choice(lambda: names)


KANIKO = (
    "gcr.io/kaniko-project/executor:v1.24.0"
    "@sha256:4e7a52dd1f14872430652bb3b027405b8dfd17c4538751c620ac005741ef9698"
)
"""The executor by its digest (an index: amd64, arm64, s390x, ppc64le); the version that the tests
run. Whoever builds with it trusts it with the passwords of registries."""


def _state_home() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "ciao"


def _setting(default: Any, kind: kinds.Kind, text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "help": text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings. ``origins`` says where each that is not built-in was set."""

    backend: str = _setting("auto", _Optional(), "Where jobs run if a cell does not say.")
    builder: str = _setting("auto", _Optional(), "How code travels if a cell does not say.")
    framework: str = _setting("", _Optional(), "Framework of cells that name none.")
    python: str = _setting("", _Optional(), "Interpreter of local replicas; empty: the kernel's.")
    clean_policy: CleanPolicy = field(
        default=CleanPolicy.RUNNING,
        metadata={
            "kind": kinds.Choice(lambda: tuple(p.value for p in CleanPolicy), CleanPolicy),
            "help": "What goes when a job is over.",
        },
    )
    on_shutdown: str = _setting(
        "auto",
        _names("auto", "leave", "delete"),
        "What happens to a followed job when its kernel ends; auto: local jobs end, others stay.",
    )
    storage: Path = field(
        default_factory=_state_home,
        metadata={"kind": _Folder(), "help": "Folder of local jobs: their files and logs."},
    )
    stop_grace: float = _setting(
        5.0, _Number(0, "seconds"), "From SIGTERM to SIGKILL when a replica is stopped."
    )
    linger: float = _setting(
        1.0,
        _Number(0, "seconds"),
        "Time that other workers get to end by themselves once the job has succeeded.",
    )
    shutdown_wait: float = _setting(
        1.0,
        _Number(0, "seconds"),
        "Time after an interrupt in which a shutdown may still follow and save the job.",
    )
    local_replicas: float = _setting(
        128.0, _Number(1, "replicas"), "How many replicas a local job may have."
    )
    context: str = _setting("", _Optional(), "Context of the kubeconfig; empty: its current one.")
    namespace: str = _setting("", _Optional(), "Namespace of jobs; empty: the context's.")
    images: Mapping[str, str] = field(
        default_factory=dict,
        metadata={"kind": _Images(), "help": "Image of a framework's replicas on a cluster."},
    )
    cluster_python: str = _setting(
        "python3", _Optional(), "Interpreter of the replicas in their image."
    )
    ttl: float = _setting(
        86_400.0, _Number(0, "seconds"), "Time that a finished job stays on the cluster."
    )
    request_patience: float = _setting(
        30.0, _Number(0, "seconds"), "Time for which an API server that is away is asked again."
    )
    follow_patience: float = _setting(
        600.0,
        _Number(1, "seconds"),
        "Time that an API server may be away before a cell stops following its job.",
    )
    hopeless_wait: float = _setting(
        60.0,
        _Number(0, "seconds"),
        "Time after which a replica whose image cannot be had fails the job.",
    )
    architecture: str = _setting(
        "amd64", _Optional(), "Of the cluster's nodes, for images: amd64, arm64."
    )
    registry: str = _setting(
        "", _Optional(), "Repository that gets the images of cells: HOST/PATH."
    )
    plain_registries: tuple[str, ...] = _setting(
        (), _Hosts(), "Registries that speak http; with all others https is a must."
    )
    registry_authority: str = _setting(
        "", _Optional(), "File of the certificate that signs that of a private registry."
    )
    push_secret: str = _setting(
        "", _Optional(), "Secret with registries' passwords if a cell names no %pushSecret."
    )
    pip_secret: str = _setting(
        "",
        _Optional(),
        "Secret with a pip.conf for pods that build, if a cell names no %pipSecret.",
    )
    s2i_builder: str = _setting(
        "", _Optional(), "Builder image of source-to-image if a cell names no %s2iBuilder."
    )
    kaniko_image: str = _setting(KANIKO, _Optional(), "Image of pods that build images.")
    build_deadline: float = _setting(
        3600.0, _Number(1, "seconds"), "Time after which a pod that builds an image is ended."
    )
    build_cpu: str = _setting(
        "", _Optional(), "Processors for a pod that builds an image: 2; empty: as they come."
    )
    build_memory: str = _setting(
        "", _Optional(), "Memory for a pod that builds an image: 4Gi; empty: as it comes."
    )
    cache_days: float = _setting(
        30.0,
        _Number(1, "days"),
        "Time after which packages that no cell has used go from the folder of local jobs.",
    )
    color: str = _setting("auto", _names("auto", "always", "never"), "Colours in output.")
    output_rate: float = _setting(
        800_000.0,
        _Number(1000, "bytes"),
        "Log bytes a second that a cell shows; Jupyter Server's own limit is 1,000,000.",
    )
    output_limit: float = _setting(
        20_000_000.0, _Number(1000, "bytes"), "Log bytes that a cell shows in all."
    )
    line_limit: float = _setting(
        10_000.0, _Number(80, "characters"), "Characters of one log line that a cell shows."
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


def config_files() -> tuple[Path, Path]:
    """The administrator's file and the user's."""
    home = os.environ.get("XDG_CONFIG_HOME")
    user = Path(home) if home else Path.home() / ".config"
    return Path("/etc/ciao/config.toml"), user / "ciao" / "config.toml"


def load(
    files: Iterable[Path] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read all places but the cell and the kernel.

    Args:
        files: Configuration files, weakest first; None means the usual two.
        environment: Where ``CIAO_*`` variables are looked up; None means ``os.environ``.

    Raises:
        SettingError: A file cannot be read, or a name or value in one of the places is wrong.
    """
    settings, faults = survey(files, environment)
    if faults:
        raise faults[0]
    return settings


def survey(
    files: Iterable[Path] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[Settings, list[SettingError]]:
    """Read as :func:`load` does, but leave out places that are wrong, and say what is.

    For commands that must work all the same, such as ``ciao doctor``.
    """
    settings, faults = Settings(), []
    variables = os.environ if environment is None else environment
    places: list[tuple[str, Callable[[], Mapping[str, Any]]]] = [
        (str(file), functools.partial(_read, file))
        for file in (config_files() if files is None else files)
    ]
    for name in (known.name for known in _settings()):
        variable = f"CIAO_{name.upper()}"
        if variable in variables:
            places.append((f"${variable}", functools.partial(dict, {name: variables[variable]})))
    for origin, read in places:
        try:
            settings = settings.with_values(read(), origin)
        except SettingError as error:
            faults.append(error)
    return settings, faults


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{file} cannot be read: {error}", 'Write lines such as: backend = "local"'
        ) from None
