"""Brings Python packages for another machine's Python here, as files: pip alone, no pod.

pip chooses what fits what is installed there already; what is there is not brought again, so that
an image's numpy is not hidden by another one. What has no wheel cannot be had in this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ciao_kernel.errors import SourceError
from ciao_kernel.requirements import Requirements

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}
_GLIBC = (34, 31, 28, 27, 24, 17)
"""Minor versions of the C library for which wheels are taken: Debian 10 has 2.28."""
_NEWEST = 28
_SECONDS = 1800
_NO_WHEEL = re.compile(
    r"No matching distribution found for|Could not find a version|from versions: none"
)
_CONFLICT = re.compile(r"ResolutionImpossible|conflicting dependencies")


@dataclass(frozen=True, slots=True)
class Target:
    """The Python that the packages are for.

    Args:
        python: Its version, ``3.13``.
        architecture: Of its machine, in Go's words.
        packages: What it has, by normalised name.
    """

    python: str
    architecture: str
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wheels:
    """Packages that were brought here.

    Args:
        folder: Where they are unpacked, as on a ``PYTHONPATH``.
        names: ``name==version`` of each, sorted.
        replaced: Those of them that hide another version of the image's.
    """

    folder: Path
    names: tuple[str, ...]
    replaced: tuple[str, ...]


class NoWheel(Exception):
    """A package has no wheel for the target; the text names it, in pip's words."""


async def bring(
    wanted: Requirements, target: Target, cache: Path, emit: Callable[[str], None]
) -> Wheels:
    """Choose versions, and unpack those that the target does not have.

    Args:
        wanted: What pip is asked for.
        target: Where they will be imported.
        cache: Folder that keeps what was brought.
        emit: Is told before something takes long.

    Raises:
        NoWheel: A package, or a version of it, has none.
        SourceError: pip says that the requirements are wrong, or cannot reach its index.
    """
    chosen = await _chosen(wanted, target, cache)
    have = target.packages
    missing = {name: version for name, version in chosen.items() if have.get(name) != version}
    names = tuple(f"{name}=={version}" for name, version in sorted(missing.items()))
    replaced = tuple(
        f"{name} {have[name]} by {version}" for name, version in missing.items() if name in have
    )
    key = hashlib.sha256(json.dumps([target.python, target.architecture, names]).encode())
    folder = cache / "wheels" / key.hexdigest()[:24]
    if names and not folder.is_dir():
        emit(f"bringing {len(names)} packages: {', '.join(names)} …")
        await _unpack(names, target, folder, wanted.index)
    return Wheels(folder, names, replaced)


async def _chosen(wanted: Requirements, target: Target, cache: Path) -> dict[str, str]:
    """What pip chose the first time that this was asked: the same wishes are the same image."""
    have = sorted(target.packages.items())
    asked = json.dumps([wanted.key, target.python, target.architecture, have])
    kept = cache / "chosen" / f"{hashlib.sha256(asked.encode()).hexdigest()[:24]}.json"
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(kept.read_text()))
    chosen = await _choose(wanted, target, cache)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(chosen))
    return chosen


async def _choose(wanted: Requirements, target: Target, cache: Path) -> dict[str, str]:
    """What pip would install, by name: first with what the target has as it is."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as place:
        held = Path(place) / "installed.txt"
        held.write_text(
            "".join(f"{name}=={version}\n" for name, version in target.packages.items())
        )
        report = Path(place) / "report.json"
        options = ["--dry-run", "--report", str(report), "--target", place]
        options += wanted.arguments
        try:
            await _pip(["--constraint", str(held), *options], target, wanted.index)
        except _Conflict:
            try:
                await _pip(options, target, wanted.index)
            except _Conflict as error:
                raise SourceError(
                    f"the packages do not go together: {error}", "pip install tells more of it."
                ) from None
        found: Any = json.loads(report.read_text())
    return {
        re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower(): str(one["metadata"]["version"])
        for one in found["install"]
    }


async def _unpack(names: Sequence[str], target: Target, folder: Path, index: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        options = ["--no-deps", "--no-compile", "--target", str(partial), *names]
        await _pip(options, target, index)
        shutil.rmtree(partial / "bin", ignore_errors=True)  # scripts for this machine's Python
        try:
            partial.rename(folder)
        except OSError:  # another kernel was faster
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class _Conflict(Exception):
    """The requirements do not go together."""


async def _pip(options: Sequence[str], target: Target, index: str) -> None:
    machine = _MACHINES.get(target.architecture, target.architecture)
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC if minor <= _NEWEST]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--no-warn-conflicts", "--only-binary=:all:"]
    command += ["--ignore-installed", "--implementation", "cp", "--python-version", target.python]
    for platform in [*platforms, f"manylinux2014_{machine}", f"linux_{machine}"]:
        command += ["--platform", platform]
    if index:
        command += ["--index-url", index]
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"PIP_PROGRESS_BAR": "off", "PYTHONNOUSERSITE": "1"},
    )
    try:
        async with asyncio.timeout(_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise _fault(output.decode(errors="replace"))


def _fault(output: str) -> Exception:
    """What pip's complaint means."""
    lines = [line for line in output.splitlines() if line.startswith("ERROR")] or ["no reason"]
    said = re.sub(r"//[^/@\s]+@", "//…@", lines[-1].removeprefix("ERROR: "))
    if _CONFLICT.search(output):
        return _Conflict(said)
    if "Temporary failure" in output or "ConnectionError" in output or "NewConnection" in output:
        return SourceError(
            f"the package index does not answer: {said}",
            "Can this machine reach it? %pipIndex=URL names another one.",
        )
    if _NO_WHEEL.search(output):
        return NoWheel(said)
    return SourceError(
        f"pip does not take the requirements: {said}", "See %packages, %requirements."
    )
