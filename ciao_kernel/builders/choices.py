"""Lets pip choose packages for another machine's Python, and keeps the choice in the cache.

The same requirements give the same image until pip's inputs on this machine change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ciao_kernel import disk_cache
from ciao_kernel.builders import elsewhere
from ciao_kernel.delivery.packages import fingerprint, pip
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.file_lock import Lock

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}
_GLIBC = (28, 27, 24, 17)
"""Minor versions of glibc whose wheels are accepted: Debian 10 has 2.28."""
_MUSL = (2, 1)
_VERSION = re.compile(
    r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)*(\+[a-z0-9]+([._-][a-z0-9]+)*)?", re.IGNORECASE
)
"""Versions that pip accepts; packages of a Linux distribution may have other forms."""
_NO_EXTRA = re.compile(r"WARNING: (\S+) \S+ does not provide the extra '([^']+)'")
_FOR_EXTRA = re.compile(r";.*\bextra\b")


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


@dataclass(frozen=True, slots=True, order=True)
class Chosen:
    """One chosen package; its wheel's digest and its direct URL are "" if there is none."""

    name: str
    version: str
    sha256: str
    address: str


async def choose(
    wanted: Requirements,
    target: Target,
    cache: Path,
    emit: Callable[[str], None],
    *,
    anew: bool = False,
) -> tuple[list[Chosen], bool]:
    """Return the packages that pip would install, sorted by name, and whether they were cached.

    Args:
        wanted: Requirements for pip.
        target: Python that the packages are for.
        cache: Folder that keeps choices.
        emit: Receives notices about unknown dependencies.
        anew: Ignore an earlier choice; it is kept if pip cannot make a new one.

    Raises:
        Failed: pip finds no compatible versions.
    """
    if not wanted.packages:
        return [], False
    have = sorted(target.packages.items())
    answers = await asyncio.to_thread(fingerprint.digest, wanted.options, wanted.index)
    asked = [wanted.key, answers, target.python, target.architecture, target.musl, have]
    name = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]
    kept = cache / "chosen" / f"{name}.json"
    disk_cache.used(kept)
    if not anew and (known := _read(kept)) is not None:
        return known, True
    async with pip.alone(kept.with_suffix(".lock"), lambda: None) as lock:
        if not anew and (known := _read(kept)) is not None:
            return known, True
        found = await _choose(wanted, target, kept.parent, lock, emit)
        partial = kept.with_suffix(".part")
        partial.write_text(json.dumps([astuple(one) for one in found]))
        partial.replace(kept)
        return found, False


def _read(kept: Path) -> list[Chosen] | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [Chosen(*one) for one in json.loads(kept.read_text())]
    return None


async def _choose(
    wanted: Requirements, target: Target, cache: Path, lock: Lock, emit: Callable[[str], None]
) -> list[Chosen]:
    """Let pip choose; look up the extras of installed packages only if pip misses them."""
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as name:
        place = Path(name)
        installed, report = place / "installed", place / "report.json"
        installed.mkdir()
        for package, version in target.packages.items():
            if _VERSION.fullmatch(version):
                _tell(installed, package, version)
        options = ["--dry-run", "--report", str(report), *wanted.arguments(place)]
        described: set[str] = set()
        while True:
            said: list[str] = []
            await run(options, target, installed, wanted.index, lock, said.append)
            matches = map(_NO_EXTRA.search, said)
            lacks = {match[1]: match[2] for match in matches if match}
            unknown = {one for one in lacks if one in target.packages} - described
            if not unknown:
                break
            for package in sorted(unknown):
                await _describe(package, lacks[package], wanted, target, installed, lock, emit)
            described |= unknown
        for package in sorted(lacks.keys() - described):
            emit(f"{package} has no extra {lacks[package]}.")
        found: Any = json.loads(report.read_text())
    return sorted(_entry(one) for one in found["install"])


async def _describe(
    package: str,
    extra: str,
    wanted: Requirements,
    target: Target,
    installed: Path,
    lock: Lock,
    emit: Callable[[str], None],
) -> None:
    """Add the extras of an installed package, as the index describes them for its version.

    Only the names of the image's files were read, and they do not show extras.
    """
    version = target.packages[package]
    public = version.partition("+")[0]  # the index has no local versions
    with tempfile.TemporaryDirectory(dir=installed.parent) as name:
        asked, report = Path(name) / "requirements.txt", Path(name) / "report.json"
        nothing = Path(name) / "nothing"
        nothing.mkdir()
        lines = [*wanted.options, f"{package}=={public}"]
        asked.write_text("".join(f"{line}\n" for line in lines))
        options = ["--dry-run", "--no-deps", "--report", str(report), "-r", str(asked)]
        try:
            await run(options, target, nothing, wanted.index, lock)
        except pip.Failed as error:
            if error.away:
                raise
            emit(
                f"the image has {package} {version}, which is not in the package index: the "
                f"dependencies of {package}[{extra}] are unknown. Name those packages as well."
            )
            return
        told: Any = json.loads(report.read_text())["install"][0]["metadata"]
    extras = [f"Provides-Extra: {one}\n" for one in told.get("provides_extra") or ()]
    needs = [one for one in told.get("requires_dist") or () if _FOR_EXTRA.search(one)]
    _tell(installed, package, version, *extras, *(f"Requires-Dist: {one}\n" for one in needs))
    if extra not in (told.get("provides_extra") or ()):
        emit(f"{package} {version} has no extra {extra}.")


def _tell(installed: Path, package: str, version: str, *more: str) -> None:
    """Make pip treat a package as installed."""
    told = installed / f"{package.replace('-', '_')}-{version}.dist-info"
    told.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    (told / "METADATA").write_text(text + "".join(more))


def _entry(one: Any) -> Chosen:
    """A package of pip's report: https://pip.pypa.io/en/stable/reference/installation-report/."""
    told, origin = one["metadata"], one["download_info"]
    archive = origin.get("archive_info") or {}
    digest = (archive.get("hashes") or {}).get("sha256", "")
    if not digest and str(archive.get("hash", "")).startswith("sha256="):
        digest = archive["hash"].removeprefix("sha256=")
    address = origin["url"] if one.get("is_direct") else ""
    name = re.sub(r"[-_.]+", "-", told["name"]).lower()
    return Chosen(name, str(told["version"]), str(digest), str(address))


async def run(
    options: Sequence[str],
    target: Target,
    installed: Path,
    index: str,
    lock: Lock,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Run ``pip install`` for a target.

    Args:
        options: Further options of pip.
        target: Python and machine that the packages are for.
        installed: Folder that describes the packages installed there.
        index: Address of the package index; "" means pip's own setting.
        lock: Stays locked until pip has ended.
        say: Receives each line of pip's output.

    Raises:
        Failed: pip ended with an error.
        EnvironmentFault: There is no pip.
    """
    machine = _MACHINES.get(target.architecture, target.architecture)
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    platforms += [f"manylinux2014_{machine}"]
    if target.musl:
        platforms = [f"musllinux_1_{minor}_{machine}" for minor in _MUSL]
    markers = {
        "implementation_name": "cpython",
        # The lowest possible version: with it, backports for newer versions are installed too.
        "implementation_version": f"{target.python}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
    }
    place = str(pip.check())
    command = [sys.executable, "-I", "-S", str(elsewhere.__file__), place, str(installed)]
    command += [json.dumps(markers), "install", "--no-warn-conflicts"]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", target.python]
    for platform in [*platforms, f"linux_{machine}"]:
        command += ["--platform", platform]
    await pip.run([*command, *options], index, say, lock)
