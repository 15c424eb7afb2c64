"""Downloads Python packages for another machine's Python, as files: needs only pip, no pod.

pip chooses versions that fit the packages installed there. Installed packages are not downloaded
again, so an image's numpy is not hidden by another one. Only packages with a wheel are supported.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ciao_kernel import disk_cache
from ciao_kernel.builders import pip_errors, resolver
from ciao_kernel.builders.pip_errors import NoWheel as NoWheel
from ciao_kernel.builders.resolver import ResolvedPackage
from ciao_kernel.builders.target import Target as Target
from ciao_kernel.builders.target import run
from ciao_kernel.delivery.packages import package_line, pip
from ciao_kernel.delivery.packages.pip_progress import PipProgress
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.file_lock import Lock
from ciao_kernel.model import Unit
from ciao_kernel.plugins import Emit, Step
from ciao_kernel.redaction import mask

_SIGNED = re.compile(r"(?<![\w+.-])(https?://)[^/\s]+@([^\s#]+)")
"""An address with a user or a password, without its fragment."""
_REPOSITORY = re.compile(r"(?:git|hg|svn|bzr)\+")
_SOURCE = re.compile(r"\.(?:zip|tar(?:\.\w+)?|tgz|tbz2?|txz|tlz)\b")
"""An address of a source. pip also refuses to build what this does not see (pip_for_target)."""


@dataclass(frozen=True, slots=True)
class Wheels:
    """Downloaded packages.

    Args:
        folder: Folder of the unpacked packages, as for a ``PYTHONPATH``.
        names: ``name==version`` of each package, sorted.
        replaced: Packages that hide another version in the image.
        made: True if the packages were not in the cache before.
    """

    folder: Path
    names: tuple[str, ...]
    replaced: tuple[str, ...]
    made: bool = field(default=False, compare=False)


async def download(
    wanted: Requirements,
    target: Target,
    cache: Path,
    emit: Callable[[str], None],
    days: float = 30.0,
    show: Emit = lambda event: None,
) -> Wheels:
    """Choose versions, and unpack those that the target does not have.

    Args:
        wanted: Requirements for pip.
        target: Python that will import the packages.
        cache: Folder that keeps downloaded packages.
        emit: Receives a notice before a long step.
        days: Days after which unused entries are removed, at the next download.
        show: Receives the progress of long steps.

    Raises:
        NoWheel: A package, or a version of it, has no wheel.
        SourceError: pip rejects the requirements, or cannot reach its index.
        EnvironmentFault: There is no pip, or no space.
    """
    for line in wanted.lines:
        if _REPOSITORY.search(line) or _SOURCE.search(line.partition("://")[2]):
            raise NoWheel(package_line.wish(line))
        if line.startswith("--no-binary"):
            raise NoWheel(mask(line))
    try:
        with Step(show, f"choosing versions for {wanted.label}"):
            chosen, earlier = await resolver.choose(wanted, target, cache, emit)
        try:
            found = await _unpacked(chosen, wanted, target, cache, emit, show)
        except pip.Failed as error:
            if not earlier or error.away:
                raise
            emit("versions chosen earlier are no longer available; choosing again …")
            with Step(show, f"choosing versions for {wanted.label}"):
                chosen, _ = await resolver.choose(wanted, target, cache, emit, refresh=True)
            found = await _unpacked(chosen, wanted, target, cache, emit, show)
    except pip.Failed as error:
        raise pip_errors.explained(error, emit) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise pip.full() from None
        raise
    if found.made:
        for name in ("wheels", "chosen"):
            await asyncio.to_thread(disk_cache.prune, cache / name, days)
    return found


async def _unpacked(
    chosen: Sequence[ResolvedPackage],
    wanted: Requirements,
    target: Target,
    cache: Path,
    emit: Callable[[str], None],
    show: Emit,
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
    digests = [one.sha256 for one in missing]  # the lines contain them only if all are known
    facts = json.dumps([*target.key, lines, digests])
    folder = cache / "wheels" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    disk_cache.used(folder)
    made = bool(names) and not disk_cache.is_own(folder)
    if made:

        def wait() -> None:
            emit("another job is downloading the same packages; waiting for it …")

        async with pip.alone(folder.with_suffix(".lock"), wait) as lock:
            if not disk_cache.is_own(folder):
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                emit(f"downloading {', '.join(names)} …")
                asked = [*wanted.options, *_signed(lines, wanted)]
                with Step(show, "downloading packages") as step:
                    progress = PipProgress(step, len(names))
                    await _unpack(asked, target, folder, wanted.index, lock, progress)
                    step.at(len(names), len(names), Unit.PACKAGES)
    return Wheels(folder, names, replaced, made)


def _pinned(chosen: Sequence[ResolvedPackage]) -> list[str]:
    """Return requirement lines for exactly these wheels; digests only if all are known."""
    known = all(one.sha256 for one in chosen)  # pip requires all or none
    return [
        (f"{one.name} @ {one.address}" if one.address else f"{one.name}=={one.version}")
        + (f" --hash=sha256:{one.sha256}" if known else "")
        for one in chosen
    ]


def _signed(lines: Sequence[str], wanted: Requirements) -> list[str]:
    """Return the lines for pip with the passwords of their addresses, which pip's report omits.

    They are only written to a file that is removed after the download, never to the cache.
    """
    places = dict[str, str]()
    for line in (*wanted.lines, *wanted.constraints):
        for found in _SIGNED.finditer(line):
            places[f"{found[1]}{found[2]}"] = found[0]
    signed = []
    for line in lines:
        name, at, rest = line.partition(" @ ")
        address, *options = rest.split(" ")
        signed.append(" ".join([name, "@", places.get(address, address), *options]) if at else line)
    return signed


async def _unpack(
    lines: Sequence[str],
    target: Target,
    folder: Path,
    index: str,
    lock: Lock,
    progress: PipProgress,
) -> None:
    partial = folder.with_suffix(".part")
    await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
    try:
        nothing, site = partial / "nothing", partial / "site"
        nothing.mkdir(parents=True)
        asked = partial / "requirements.txt"
        asked.touch(mode=0o600)  # an address may contain a password
        asked.write_text("".join(f"{line}\n" for line in lines))
        options = ["--no-deps", "--no-compile", "--target", str(site), "-r", str(asked)]
        await run(options, target, nothing, index, lock, progress=progress)
        shutil.rmtree(site / "bin", ignore_errors=True)  # scripts for this machine's Python
        site.chmod(0o700)  # pip's own mode follows the umask
        site.rename(folder)
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True))
