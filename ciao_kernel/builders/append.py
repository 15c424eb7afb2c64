"""``%builder=append``: the cell, its files and its packages as layers on an image.

Through the registry's API alone, without a pod, a daemon or root. Packages come first, as an image
of their own: an edited cell is then one small layer on what is there.
"""

from __future__ import annotations

import contextlib
import errno
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ciao_kernel import disk_cache
from ciao_kernel.builders import wheels
from ciao_kernel.builders.images import Bench, Work, automatic
from ciao_kernel.builders.kaniko import KanikoBuilder
from ciao_kernel.builders.oci import reference
from ciao_kernel.builders.oci.append import Change
from ciao_kernel.builders.oci.contents import Unreadable
from ciao_kernel.builders.oci.image import Image
from ciao_kernel.builders.oci.layer import File, Layer, pack
from ciao_kernel.builders.oci.reference import Reference
from ciao_kernel.config import Settings
from ciao_kernel.delivery.packages import pip, requirements
from ciao_kernel.errors import SourceError
from ciao_kernel.model import Artifact
from ciao_kernel.plugins import Build, Emit

_SITE = "/opt/ciao/site"
"""Where packages are unpacked. In front of the image's own on the PYTHONPATH."""


class _PodOnly(SourceError):
    """A package has to be built, or chosen by the image's own pip: only a pod could do that."""


def _no_wheel(error: wheels.NoWheel, wanted: requirements.Requirements, where: str) -> _PodOnly:
    place = wanted.place(error.by or error.wish)
    by = f" ({error.by} needs it)" if error.by else ""
    has = f"; it has {error.versions}." if error.versions else ", or no such package."
    return _PodOnly(
        (f"{place}: " if place else "") + f"there is no wheel of {error.wish}{by} for {where}{has}",
        "Is the name right? Name a version that has one, or write %builder=kaniko: a pod builds "
        "others, where the image has what it takes, such as a compiler.",
    )


class AppendBuilder:
    """``%builder=append``.

    Args:
        settings: Registry, its authority, and the folder of caches.
    """

    name = "append"
    backend = "kubernetes"
    brings = frozenset({"packages", "requirements", "base"})

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bench = Bench(settings)
        self._kaniko: KanikoBuilder | None = None

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Append, and return the image by its digest.

        Raises:
            SpecError: No registry is named.
            SourceError: A file cannot be read, or a package cannot be had in this way.
            RegistryFault: A registry says no.
        """
        spec = ask.spec.build
        work = await self._bench.work(ask, emit)
        wanted = requirements.read(spec, ask.work)
        base, path = reference.parse(spec.base or ask.image), ""
        if wanted.packages:
            try:
                base, path = await self._environment(base, wanted, work)
            except (_PodOnly, Unreadable) as error:
                if not await self._free(ask):
                    raise
                work.say(f"{error.message.rstrip('.')}: a pod builds the image (kaniko).")
                self._kaniko = self._kaniko or KanikoBuilder(self._settings)
                return await self._kaniko.build(ask, emit)
        made = await work.deliver(base)
        # A user's own value would hide what the image says.
        return replace(made, env=(("PYTHONPATH", path),)) if path else made

    async def _free(self, ask: Build) -> bool:
        """Whether a builder with a pod may take over: the user has named none, and may run pods."""
        if not automatic(ask, self._settings) or ask.workshop is None:
            return False
        return await ask.workshop.free()

    async def _environment(
        self, base: Reference, wanted: requirements.Requirements, work: Work
    ) -> tuple[Reference, str]:
        """The base with the packages, which many cells share, and the PYTHONPATH that it needs."""
        cache, platform = self._settings.storage / "cache", work.platform
        image = await work.inspect(base)
        base = base.at(image.digest)  # its tag may move meanwhile
        python = work.ask.python
        found = await work.thread(
            lambda: work.appender.installed(base, image, cache, work.say, python, work.check)
        )
        if not found.python:
            raise _PodOnly(
                f"{base.name} has no {python} that could be found, so nobody knows which packages "
                "fit it.",
                "Name an image with Python (%base=python:3.13-slim), or its path (%python=…).",
            )
        goal = wheels.Target(found.python, platform.architecture, found.packages, found.musl)
        try:
            brought = await wheels.bring(wanted, goal, cache, work.say, self._settings.cache_days)
        except wheels.NoWheel as error:
            raise _no_wheel(error, wanted, f"Python {found.python} on {platform}") from None
        if brought.made:
            await work.thread(lambda: disk_cache.prune(cache / "layers", self._settings.cache_days))
        if brought.replaced:
            work.say(f"other versions than the image's: {', '.join(brought.replaced)}")
        if not brought.names:
            return base, _path(image) if _SITE in _folders(image) else ""
        layer = await work.thread(lambda: _packed(brought.folder, work.check))
        path = _path(image)
        change = Change(env=(("PYTHONPATH", path),))
        made = await work.append(base, [layer], change)
        if not made.unchanged:
            work.say(f"packages are in {made.image}")
        return made.image, path


def _packed(folder: Path, heard: Callable[[], None]) -> Layer:
    """The layer of packages that were brought; packed once."""
    place, record = folder.with_suffix(".tar.gz"), folder.with_suffix(".json")
    for entry in (place, record):
        disk_cache.used(entry)  # then nobody removes it before it is sent
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads(record.read_text())
        if place.stat().st_size == known["size"]:
            return Layer(known["digest"], known["diff_id"], known["size"], place)
    files = [
        File(f"{_SITE}/{path.relative_to(folder)}", path, bool(path.stat().st_mode & 0o100))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent) as own:  # two kernels may pack at once
            layer = pack(files, Path(own) / "layer", heard=heard)
            known = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
            (Path(own) / "record").write_text(json.dumps(known))
            (Path(own) / "layer").replace(place)
            (Path(own) / "record").replace(record)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise pip.full() from None
        raise
    return replace(layer, content=place)


def _folders(image: Image) -> list[str]:
    return [one for one in image.env.get("PYTHONPATH", "").split(":") if one]


def _path(image: Image) -> str:
    return ":".join([_SITE, *(one for one in _folders(image) if one != _SITE)])
