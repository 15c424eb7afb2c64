"""Brings Python packages for another machine's Python here, as files: pip alone, no pod.

pip chooses what fits what is installed there already; what is there is not brought again, so that
an image's numpy is not hidden by another one. What has no wheel cannot be had in this way.
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
from typing import IO

from ciao_kernel import disk_cache
from ciao_kernel.builders import choices, complaints
from ciao_kernel.builders.choices import Chosen
from ciao_kernel.builders.choices import Target as Target
from ciao_kernel.builders.complaints import NoWheel as NoWheel
from ciao_kernel.delivery.packages import pip
from ciao_kernel.delivery.packages.requirements import Requirements
from ciao_kernel.redaction import masked

_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*(?:\[[^]]*\])?)\s*@")
"""A package before its address; an address alone has an @ of its own where it names a user."""


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
        chosen, earlier = await choices.choose(wanted, target, cache, emit)
        try:
            found = await _unpacked(chosen, wanted, target, cache, emit)
        except pip.Failed as error:
            if not earlier or error.away:
                raise
            emit("what was chosen earlier cannot be had any more; choosing anew …")
            chosen, _ = await choices.choose(wanted, target, cache, emit, anew=True)
            found = await _unpacked(chosen, wanted, target, cache, emit)
    except pip.Failed as error:
        raise complaints.explained(error, emit) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise pip.full() from None
        raise
    if found.made:
        for name in ("wheels", "chosen"):
            await asyncio.to_thread(disk_cache.prune, cache / name, days)
    return found


async def _unpacked(
    chosen: Sequence[Chosen],
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
    digests = [one.sha256 for one in missing]  # a line with an address has none
    facts = json.dumps([target.python, target.architecture, target.musl, lines, digests])
    folder = cache / "wheels" / hashlib.sha256(facts.encode()).hexdigest()[:24]
    disk_cache.used(folder)
    made = bool(names) and not folder.is_dir()
    if made:

        def wait() -> None:
            emit("another cell brings the same packages; waiting for it …")

        async with pip.alone(folder.with_suffix(".lock"), wait) as lock:
            if not folder.is_dir():
                emit(f"bringing {', '.join(names)} …")
                await _unpack([*wanted.options, *lines], target, folder, wanted.index, lock)
    return Wheels(folder, names, replaced, made)


def _pinned(chosen: Sequence[Chosen]) -> list[str]:
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
        await choices.run(options, target, nothing, index, lock)
        shutil.rmtree(site / "bin", ignore_errors=True)  # scripts for this machine's Python
        site.rename(folder)
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True))
