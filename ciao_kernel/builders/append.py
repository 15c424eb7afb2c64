"""``%builder=append``: the cell, its files and its packages as layers on an image.

Through the registry's API alone, without a pod, a daemon or root. Packages come first, as an image
of their own: an edited cell is then one small layer on what is there.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from ciao_kernel import requirements
from ciao_kernel.builders import wheels
from ciao_kernel.config import Settings
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.model import Artifact, Notice, Source
from ciao_kernel.oci import reference
from ciao_kernel.oci.append import Appender, Change
from ciao_kernel.oci.image import Image, Platform
from ciao_kernel.oci.layer import File, Layer, pack
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registries import Registries
from ciao_kernel.plugins import Build, Emit

WORKDIR = "/ciao"
"""As with a ConfigMap, so that a program finds itself in the same place by either builder."""
_SITE = "/opt/ciao/site"
"""Where packages are unpacked. In front of the image's own on the PYTHONPATH."""


class AppendBuilder:
    """``%builder=append``.

    Args:
        settings: Registry, its authority, and the folder of caches.
    """

    name = "append"
    backend = "kubernetes"
    installs = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        authority = Path(settings.registry_authority) if settings.registry_authority else None
        self._registries = Registries(settings.plain_registries, authority)
        self._appender = Appender(self._registries.of)

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Append, and return the image by its digest.

        Raises:
            SpecError: No registry is named.
            SourceError: A file cannot be read, or a package cannot be had in this way.
            RegistryFault: A registry says no.
        """
        target = _target(ask.spec.build.registry or self._settings.registry)
        base = reference.parse(ask.spec.build.base or ask.image)
        platform = Platform(ask.architecture)
        environment = base
        if ask.spec.build.needed:
            environment = await self._environment(base, target, platform, ask, emit)
        layer = await asyncio.to_thread(_layer, ask.source)
        change = Change(workdir=WORKDIR)
        image = await self._append(environment, target, layer, change, platform, ask, emit)
        return Artifact(ask.source, ask.python, WORKDIR, image=image)

    async def _environment(
        self,
        base: Reference,
        target: Reference,
        platform: Platform,
        ask: Build,
        emit: Emit,
    ) -> Reference:
        """The base with the packages, which many cells share."""
        wanted = requirements.read(ask.spec.build, ask.work)
        cache = self._settings.storage / "cache"

        def say(text: str) -> None:
            loop.call_soon_threadsafe(emit, Notice(text))

        loop = asyncio.get_running_loop()
        image = await asyncio.to_thread(self._appender.inspect, base, platform)
        found = await asyncio.to_thread(self._appender.installed, base, image, cache, say)
        if not found.python:
            raise SourceError(
                f"{base} has no Python that could be found, so nobody knows which packages fit it.",
                "Name an image with Python: %base=python:3.13-slim.",
            )
        goal = wheels.Target(found.python, platform.architecture, found.packages)
        try:
            brought = await wheels.bring(wanted, goal, cache, say)
        except wheels.NoWheel as error:
            raise SourceError(
                f"a package has no wheel for Python {found.python} on {platform}: {error}.",
                "Name a version that has one.",
            ) from None
        if brought.replaced:
            emit(Notice(f"other versions than the image's: {', '.join(brought.replaced)}"))
        if not brought.names:
            return base
        layer = await asyncio.to_thread(_packed, brought.folder)
        change = Change(env=(("PYTHONPATH", _path(image)),))
        made = await self._append(base, target, layer, change, platform, ask, emit)
        return reference.parse(made)

    async def _append(
        self,
        base: Reference,
        target: Reference,
        layer: Layer,
        change: Change,
        platform: Platform,
        ask: Build,
        emit: Emit,
    ) -> str:
        # Not interrupted half-way: what is pushed is whole or is nothing, and it takes no time.
        made = await asyncio.to_thread(
            self._appender.append, base, target, [layer], change, platform, push=not ask.dry
        )
        emit(Notice(f"image {made.image}{' (unchanged)' if made.unchanged else ''}"))
        return str(made.image)


def _target(text: str) -> Reference:
    if not text:
        raise SpecError(
            "no registry is named that could hold the image.",
            "Write %registry=host/team/cells, or `%ciao config registry=host/team/cells`.",
            directive="builder",
        )
    return replace(reference.parse(text), tag="", digest="")


def _layer(source: Source) -> Layer:
    files = []
    for file in source.all():
        content = file.origin if file.data is None else file.data
        assert content is not None
        runs = file.origin is not None and bool(file.origin.stat().st_mode & 0o100)
        files.append(File(f"{WORKDIR}/{file.path}", content, runs))
    return pack(files, writable=[WORKDIR])


def _packed(folder: Path) -> Layer:
    """The layer of packages that were brought; packed once."""
    place = folder.with_name(f"{folder.name}.tar.gz")
    record = folder.with_name(f"{folder.name}.json")
    if place.exists() and record.exists():
        known = json.loads(record.read_text())
        return Layer(known["digest"], known["diff_id"], known["size"], place)
    partial = place.with_suffix(".part")
    files = [
        File(f"{_SITE}/{path.relative_to(folder)}", path, bool(path.stat().st_mode & 0o100))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    layer = pack(files, partial)
    partial.replace(place)
    known = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
    record.write_text(json.dumps(known))
    return replace(layer, content=place)


def _path(image: Image) -> str:
    own = image.env.get("PYTHONPATH", "")
    return f"{_SITE}:{own}" if own else _SITE
