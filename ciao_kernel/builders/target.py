"""The Python of another machine that packages are for, and pip's runs for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel.builders import pip_for_target
from ciao_kernel.delivery.packages import pip, pip_settings
from ciao_kernel.delivery.packages.pip_progress import PipProgress
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.file_lock import Lock

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "arm": "armv7l", "loong64": "loongarch64"}
"""Architectures with another name in Python; the others have the same one."""
_USUAL_GLIBC = 28
"""Minor version of glibc where it is not known: that of Debian 10; current images have more."""
_OLDEST_GLIBC = 5
"""The oldest one whose wheels are accepted: a glibc runs what is for older ones, but pip takes only
what it is told."""
_GLIBC_OF_2014 = 17
"""Minor version of glibc that wheels for manylinux2014 need."""
_MUSL = (2, 1)
_DRY = "23.3"
"""Version of pip that added a dry run for another machine."""


@dataclass(frozen=True, slots=True)
class Target:
    """The Python that the packages are for.

    Args:
        python: Version of Python, as ``3.13``.
        architecture: Architecture of the machine, as Go names it.
        packages: Versions of the installed packages, by normalised name.
        musl: True if the C library is musl, as in Alpine.
        glibc: Minor version of glibc, as 36 of 2.36; 0 if it is not known.
    """

    python: str
    architecture: str
    packages: Mapping[str, str]
    musl: bool = False
    glibc: int = 0

    @property
    def key(self) -> list[str | bool | int]:
        """Python and machine, for names in the cache; the installed packages are not in it."""
        return [self.python, self.architecture, self.musl, self.glibc]

    @property
    def assumed(self) -> str:
        """Assumption about the C library, for messages; "" if there is none."""
        known = self.musl or self.glibc
        return "" if known else f" for glibc 2.{_USUAL_GLIBC} and older"

    @property
    def platforms(self) -> list[str]:
        """The platforms whose wheels run there; the best comes first."""
        newest = self.glibc or _USUAL_GLIBC
        found = [f"manylinux_2_{minor}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
        found += ["manylinux2014"] if newest >= _GLIBC_OF_2014 else []
        if self.musl:
            found = [f"musllinux_1_{minor}" for minor in _MUSL]
        return [f"{one}_{self.machine}" for one in (*found, "linux")]

    @property
    def machine(self) -> str:
        """The architecture, as Python names it."""
        return _MACHINES.get(self.architecture, self.architecture)

    @property
    def markers(self) -> dict[str, str]:
        """The values for markers of requirements."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }

    def check(self, report: Any) -> None:
        """Check that pip has evaluated the markers of dependencies for this Python.

        Args:
            report: pip's report: https://pip.pypa.io/en/stable/reference/installation-report/.

        Raises:
            EnvironmentFault: It has not.
        """
        used = report.get("environment") or {}
        for name, value in self.markers.items():
            if used.get(name) != value:
                raise EnvironmentFault(
                    f"pip {report.get('pip_version')} chose packages for {name} {used.get(name)!r} "
                    f"instead of {value!r}, so they may be the wrong ones.",
                    "Install another release of pip, or write %builder=kaniko: a pod chooses them.",
                )


async def run(
    options: Sequence[str],
    target: Target,
    installed: Path,
    index: str,
    lock: Lock,
    say: Callable[[str], None] = lambda line: None,
    progress: PipProgress | None = None,
) -> None:
    """Run ``pip install`` for a target.

    Args:
        options: Further options of pip.
        target: Python and machine that the packages are for.
        installed: Folder that describes the packages installed there.
        index: Address of the package index; "" means pip's own setting.
        lock: Stays locked until pip has ended.
        say: Receives each line of pip's output.
        progress: Learns how far pip is.

    Raises:
        Failed: pip ended with an error.
        EnvironmentFault: There is no pip, or its settings name another place for packages.
    """
    from packaging.version import Version

    machine = target.machine
    own = pip.check()
    pip_settings.check()
    restricted = "restricted" if own.version < Version(_DRY) else ""
    command = [sys.executable, "-I", "-S", str(pip_for_target.__file__), str(own.folder)]
    command += [sys.prefix, str(installed), target.python, machine, restricted]
    command += ["install", "--no-warn-conflicts"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    for platform in target.platforms:
        command += ["--platform", platform]
    await pip.run([*command, *options], index, say, lock, progress)
