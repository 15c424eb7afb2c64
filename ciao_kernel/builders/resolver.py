"""Lets pip choose packages for another machine's Python, and keeps the choice in the cache.

The same requirements give the same image until pip's inputs on this machine change.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ciao_kernel import disk_cache, private_files
from ciao_kernel.builders.target import Target, run
from ciao_kernel.delivery.packages import fingerprint, pip, stand_ins
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.file_lock import Lock

_LARGEST = 16 << 20
"""Bytes of a file in the cache: the packages of one request."""
_NO_EXTRA = re.compile(r"WARNING: (\S+) \S+ does not provide the extra '([^']+)'")


@dataclass(frozen=True, slots=True, order=True)
class ResolvedPackage:
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
    refresh: bool = False,
) -> tuple[list[ResolvedPackage], bool]:
    """Return the packages that pip would install, sorted by name, and whether they were cached.

    Args:
        wanted: Requirements for pip.
        target: Python that the packages are for.
        cache: Folder that keeps choices.
        emit: Receives notices about unknown dependencies.
        refresh: Ignore an earlier choice; it is kept if pip cannot make a new one.

    Raises:
        Failed: pip finds no compatible versions.
        EnvironmentFault: There is no pip, or it chooses for another Python.
    """
    if not wanted.packages:
        return [], False
    have = sorted(target.packages.items())
    answers = await asyncio.to_thread(fingerprint.digest, wanted.options, wanted.index)
    inputs = [wanted.key, answers, *target.key, have]
    name = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:24]
    choice_file = cache / "chosen" / f"{name}.json"
    disk_cache.used(choice_file)
    if not refresh and (known := _read(choice_file)) is not None:
        return known, True
    async with pip.alone(choice_file.with_suffix(".lock"), lambda: None) as lock:
        if not refresh and (known := _read(choice_file)) is not None:
            return known, True
        found = await _choose(wanted, target, choice_file.parent, lock, emit)
        partial = choice_file.with_suffix(".part")
        partial.unlink(missing_ok=True)
        with private_files.create(partial) as file:
            file.write(json.dumps([astuple(one) for one in found]).encode())
        partial.replace(choice_file)
        return found, False


def _read(choice_file: Path) -> list[ResolvedPackage] | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [
            ResolvedPackage(*one) for one in json.loads(private_files.read(choice_file, _LARGEST))
        ]
    return None


async def _choose(
    wanted: Requirements, target: Target, cache: Path, lock: Lock, emit: Callable[[str], None]
) -> list[ResolvedPackage]:
    """Let pip choose; look up the extras of installed packages only if pip misses them."""
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as name:
        place = Path(name)
        installed, report = place / "installed", place / "report.json"
        installed.mkdir()
        have = {name: text for name, text in target.packages.items() if _valid(text)}
        for package, version in have.items():
            _tell(installed, package, version)
        for package, version in stand_ins.of(have, wanted).items():
            _tell(installed, package, version)
        options = ["--dry-run", "--report", str(report), *wanted.arguments(place)]
        described: set[str] = set()
        while True:
            output: list[str] = []
            await run(options, target, installed, wanted.index, lock, output.append)
            matches = map(_NO_EXTRA.search, output)
            lacks = {match[1]: match[2] for match in matches if match}
            unknown = {one for one in lacks if one in have} - described
            if not unknown:
                break
            for package in sorted(unknown):
                await _describe(package, lacks[package], wanted, target, installed, lock, emit)
            described |= unknown
        for package in sorted(lacks.keys() - described):
            emit(f"{package} has no extra {lacks[package]}.")
        found: Any = json.loads(report.read_text())
    target.check(found)
    return sorted(_entry(one) for one in found["install"])


def _valid(version: str) -> bool:
    """Return whether pip accepts a version; a Linux distribution may use other forms."""
    from packaging.version import InvalidVersion, Version

    try:
        Version(version)
    except InvalidVersion:
        return False
    return True


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
    from packaging.version import Version

    version = target.packages[package]
    public = Version(version).public  # the index has no local versions
    with tempfile.TemporaryDirectory(dir=installed.parent) as name:
        requirements_file, report = Path(name) / "requirements.txt", Path(name) / "report.json"
        nothing = Path(name) / "nothing"
        nothing.mkdir()
        # A file with hashes has none for what the image has; nothing of this is installed.
        lines = [line.replace("--require-hashes", "") for line in wanted.options]
        lines += [f"{package}=={public}"]
        requirements_file.write_text("".join(f"{line}\n" for line in lines))
        options = ["--dry-run", "--no-deps", "--report", str(report), "-r", str(requirements_file)]
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
        metadata: Any = json.loads(report.read_text())["install"][0]["metadata"]
    extras = [f"Provides-Extra: {one}\n" for one in metadata.get("provides_extra") or ()]
    needs = [one for one in metadata.get("requires_dist") or () if _optional(one, target)]
    _tell(installed, package, version, *extras, *(f"Requires-Dist: {one}\n" for one in needs))
    if extra not in (metadata.get("provides_extra") or ()):
        emit(f"{package} {version} has no extra {extra}.")


def _optional(requirement: str, target: Target) -> bool:
    """Return whether a package needs a requirement only for an extra."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        marker = Requirement(requirement).marker
    except InvalidRequirement:  # pip cannot install it either
        return False
    return marker is not None and not marker.evaluate({**target.markers, "extra": ""})


def _tell(installed: Path, package: str, version: str, *more: str) -> None:
    """Make pip treat a package as installed."""
    folder = installed / f"{package.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    (folder / "METADATA").write_text(text + "".join(more))


def _entry(one: Any) -> ResolvedPackage:
    """A package of pip's report: https://pip.pypa.io/en/stable/reference/installation-report/."""
    from packaging.utils import canonicalize_name

    metadata, origin = one["metadata"], one["download_info"]
    archive = origin.get("archive_info") or {}
    digest = (archive.get("hashes") or {}).get("sha256", "")
    if not digest and str(archive.get("hash", "")).startswith("sha256="):
        digest = archive["hash"].removeprefix("sha256=")
    address = origin["url"] if one.get("is_direct") else ""
    return ResolvedPackage(
        canonicalize_name(metadata["name"]), str(metadata["version"]), str(digest), str(address)
    )
