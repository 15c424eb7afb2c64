"""Brings Python packages for another machine's Python here, as files: pip alone, no pod.

pip chooses what fits what is installed there already; what is there is not brought again, so that
an image's numpy is not hidden by another one. What has no wheel cannot be had in this way.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ciao_kernel import caches, pip
from ciao_kernel.builders import complaints, elsewhere
from ciao_kernel.builders.complaints import NoWheel as NoWheel
from ciao_kernel.requirements import Requirements, masked

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "s390x": "s390x"}
_GLIBC = (28, 27, 24, 17)
"""Minor versions of the C library for which wheels are taken: Debian 10 has 2.28."""
_MUSL = (2, 1)
_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*(?:\[[^]]*\])?)\s*@")
"""A package before its address; an address alone has an @ of its own where it names a user."""
_VERSION = re.compile(
    r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)*(\+[a-z0-9]+([._-][a-z0-9]+)*)?", re.IGNORECASE
)
"""As pip understands it; a distribution's own packages have others."""


@dataclass(frozen=True, slots=True)
class Target:
    """The Python that the packages are for.

    Args:
        python: Its version, ``3.13``.
        architecture: Of its machine, in Go's words.
        packages: What it has, by normalised name.
        musl: Its C library is musl, as in Alpine.
    """

    python: str
    architecture: str
    packages: Mapping[str, str]
    musl: bool = False


@dataclass(frozen=True, slots=True)
class Wheels:
    """Packages that were brought here.

    Args:
        folder: Where they are unpacked, as on a ``PYTHONPATH``.
        names: ``name==version`` of each, sorted.
        replaced: Those of them that hide another version of the image's.
        made: They were not here before.
    """

    folder: Path
    names: tuple[str, ...]
    replaced: tuple[str, ...]
    made: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """One package; the digest of its wheel and its own address are "" where there is none."""

    name: str
    version: str
    sha256: str
    address: str


async def bring(
    wanted: Requirements,
    target: Target,
    cache: Path,
    emit: Callable[[str], None],
    days: float = 30.0,
) -> Wheels:
    """Choose versions, and unpack those that the target does not have.

    Args:
        wanted: What pip is asked for.
        target: Where they will be imported.
        cache: Folder that keeps what was brought.
        emit: Is told before something takes long.
        days: After which what nobody has used is removed, where something is brought.

    Raises:
        NoWheel: A package, or a version of it, has none.
        SourceError: pip says that the requirements are wrong, or cannot reach its index.
        EnvironmentFault: There is no pip, or no room.
    """
    for line in wanted.lines:
        if "git+" in line or re.search(r"://\S+\.(zip|tar\.\w+|tgz)\b", line):
            named = _NAMED.match(line)
            raise NoWheel(named[1] if named else masked(line))
        if line.startswith("--no-binary"):
            raise NoWheel(masked(line))
    try:
        chosen = await _chosen(wanted, target, cache)
        found = await _unpacked(chosen, wanted, target, cache, emit)
    except pip.Failed as error:
        raise complaints.explained(error, emit) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise pip.full() from None
        raise
    if found.made:
        for name in ("wheels", "chosen"):
            await asyncio.to_thread(caches.prune, cache / name, days)
    return found


async def _chosen(wanted: Requirements, target: Target, cache: Path) -> list[_Chosen]:
    """What pip chose the first time that this was asked: the same wishes are the same image."""
    if not wanted.packages:
        return []
    have = sorted(target.packages.items())
    asked = json.dumps([wanted.key, target.python, target.architecture, target.musl, have])
    kept = cache / "chosen" / f"{hashlib.sha256(asked.encode()).hexdigest()[:24]}.json"
    caches.used(kept)
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [_Chosen(*one) for one in json.loads(kept.read_text())]
    async with pip.alone(kept.with_suffix(".lock"), lambda: None) as lock:
        if not kept.exists():
            found = await _choose(wanted, target, kept.parent, lock)
            partial = kept.with_suffix(".part")
            partial.write_text(json.dumps(found))
            partial.replace(kept)
        return [_Chosen(*one) for one in json.loads(kept.read_text())]


async def _choose(
    wanted: Requirements, target: Target, cache: Path, lock: IO[str]
) -> list[tuple[str, str, str, str]]:
    """What pip would install there, sorted by name."""
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as name:
        place = Path(name)
        installed, report = place / "installed", place / "report.json"
        installed.mkdir()
        for package, version in target.packages.items():
            if _VERSION.fullmatch(version):
                told = installed / f"{package.replace('-', '_')}-{version}.dist-info"
                told.mkdir()
                text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
                (told / "METADATA").write_text(text)
        options = ["--dry-run", "--report", str(report), *wanted.arguments(place)]
        await _pip(options, target, installed, wanted.index, lock)
        found: Any = json.loads(report.read_text())
    return sorted(_entry(one) for one in found["install"])


def _entry(one: Any) -> tuple[str, str, str, str]:
    """A package of pip's report: https://pip.pypa.io/en/stable/reference/installation-report/."""
    told, origin = one["metadata"], one["download_info"]
    archive = origin.get("archive_info") or {}
    digest = (archive.get("hashes") or {}).get("sha256", "")
    if not digest and str(archive.get("hash", "")).startswith("sha256="):
        digest = archive["hash"].removeprefix("sha256=")
    address = origin["url"] if one.get("is_direct") else ""
    name = re.sub(r"[-_.]+", "-", told["name"]).lower()
    return name, str(told["version"]), str(digest), str(address)


async def _unpacked(
    chosen: Sequence[_Chosen],
    wanted: Requirements,
    target: Target,
    cache: Path,
    emit: Callable[[str], None],
) -> Wheels:
    have = target.packages
    missing = [one for one in chosen if have.get(one.name) != one.version or one.address]
    names = tuple(f"{one.name}=={one.version}" for one in missing)
    replaced = tuple(
        f"{one.name} {have[one.name]} by {one.version}"
        for one in missing
        if have.get(one.name, one.version) != one.version
    )
    lines = _pinned(missing)
    facts = json.dumps([target.python, target.architecture, target.musl, lines])
    folder = cache / "wheels" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    caches.used(folder)
    made = bool(names) and not folder.is_dir()
    if made:

        def wait() -> None:
            emit("another cell brings the same packages; waiting for it …")

        async with pip.alone(folder.with_suffix(".lock"), wait) as lock:
            if not folder.is_dir():
                emit(f"bringing {', '.join(names)} …")
                await _unpack([*wanted.options, *lines], target, folder, wanted.index, lock)
    return Wheels(folder, names, replaced, made)


def _pinned(chosen: Sequence[_Chosen]) -> list[str]:
    """Lines that bring these very wheels, where their digests are known."""
    known = all(one.sha256 and not one.address for one in chosen)  # pip wants all or none
    return [
        f"{one.name} @ {one.address}"
        if one.address
        else f"{one.name}=={one.version}" + (f" --hash=sha256:{one.sha256}" if known else "")
        for one in chosen
    ]


async def _unpack(
    lines: Sequence[str], target: Target, folder: Path, index: str, lock: IO[str]
) -> None:
    partial = folder.with_suffix(".part")
    await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
    try:
        nothing, site = partial / "nothing", partial / "site"
        nothing.mkdir(parents=True)
        asked = partial / "requirements.txt"
        asked.write_text("".join(f"{line}\n" for line in lines))
        options = ["--no-deps", "--no-compile", "--target", str(site), "-r", str(asked)]
        await _pip(options, target, nothing, index, lock)
        shutil.rmtree(site / "bin", ignore_errors=True)  # scripts for this machine's Python
        site.rename(folder)
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True))


async def _pip(
    options: Sequence[str], target: Target, installed: Path, index: str, lock: IO[str]
) -> None:
    """Run ``pip install`` for the target."""
    machine = _MACHINES.get(target.architecture, target.architecture)
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    platforms += [f"manylinux2014_{machine}"]
    if target.musl:
        platforms = [f"musllinux_1_{minor}_{machine}" for minor in _MUSL]
    markers = {
        "implementation_name": "cpython",
        # The least that it can be: with it more of what newer ones have is brought.
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
    await pip.run([*command, *options], index, lock=lock)
