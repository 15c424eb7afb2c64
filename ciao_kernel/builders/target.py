"""The Python of another machine that packages are for, and pip's runs for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel.builders import pip_for_target
from ciao_kernel.delivery.packages import pip
from ciao_kernel.delivery.packages.pip_progress import PipProgress
from ciao_kernel.errors import EnvironmentFault
from ciao_kernel.file_lock import Lock

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}
_GLIBC = range(28, 4, -1)
"""Minor versions of glibc whose wheels are accepted: Debian 10 has 2.28, and runs all older ones.
pip takes only the platforms that it is told."""
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
    """

    python: str
    architecture: str
    packages: Mapping[str, str]
    musl: bool = False

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
        EnvironmentFault: There is no pip.
    """
    from packaging.version import Version

    machine = target.machine
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    platforms += [f"manylinux2014_{machine}"]
    if target.musl:
        platforms = [f"musllinux_1_{minor}_{machine}" for minor in _MUSL]
    own = pip.check()
    restricted = "restricted" if own.version < Version(_DRY) else ""
    command = [sys.executable, "-I", "-S", str(pip_for_target.__file__), str(own.folder)]
    command += [str(installed), target.python, machine, restricted]
    command += ["install", "--no-warn-conflicts"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    for platform in [*platforms, f"linux_{machine}"]:
        command += ["--platform", platform]
    await pip.run([*command, *options], index, say, lock, progress)
