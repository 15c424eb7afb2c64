"""``%builder=append``: the cell, its files and its packages as layers on an image.

Through the registry's API alone, without a pod, a daemon or root. Packages come first, as an image
of their own: an edited cell is then one small layer on what is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import tempfile
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from ciao_kernel import pip, requirements
from ciao_kernel.builders import wheels
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, SourceError, SpecError
from ciao_kernel.model import Artifact, Notice, Source
from ciao_kernel.oci import reference
from ciao_kernel.oci.append import Appended, Appender, Change
from ciao_kernel.oci.image import Image, Platform
from ciao_kernel.oci.layer import File, Layer, pack
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registries import Registries
from ciao_kernel.oci.registry import Registry
from ciao_kernel.plugins import Build, Emit

WORKDIR = "/ciao"
"""As with a ConfigMap, so that a program finds itself in the same place by either builder."""
_SITE = "/opt/ciao/site"
"""Where packages are unpacked. In front of the image's own on the PYTHONPATH."""
_IN_MEMORY = 16 << 20
"""Bytes of files above which their layer is packed to the disk."""
_TOLD = 20 << 20
"""Bytes of a base's layer from which on its way from another registry is told."""

Result = TypeVar("Result")

_check: ContextVar[Callable[[], None]] = ContextVar("_check")
"""Of the cell that a thread works for: raises where that was interrupted."""


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
        named = settings.registry_authority
        authority = Path(named).expanduser() if named else None
        self._registries = Registries(settings.plain_registries, authority)
        self._appender = Appender(self._registry)

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Append, and return the image by its digest.

        Raises:
            SpecError: No registry is named.
            SourceError: A file cannot be read, or a package cannot be had in this way.
            RegistryFault: A registry says no.
        """
        spec = ask.spec.build
        target = _target(spec.registry or self._settings.registry, ask)
        wanted = requirements.read(spec, ask.work)
        work = _Work(self._appender, ask, target, emit)
        base = reference.parse(spec.base or ask.image)
        if wanted.packages:
            base = await self._environment(base, wanted, work)
        layer = await work.thread(lambda: _layer(ask.source, ask.folder, work.check))
        made = await work.append(base, layer, Change(workdir=WORKDIR))
        emit(Notice(f"image {made.image}{' (unchanged)' if made.unchanged else ''}"))
        return Artifact(ask.source, ask.python, WORKDIR, image=str(made.image))

    def _registry(self, image: Reference) -> Registry:
        """Open a registry, unless nobody waits any more for what is asked of it again."""
        _check.get()()
        return self._registries.of(image)

    async def _environment(
        self, base: Reference, wanted: requirements.Requirements, work: _Work
    ) -> Reference:
        """The base with the packages, which many cells share."""
        cache, platform = self._settings.storage / "cache", work.platform
        image = await work.thread(lambda: self._appender.inspect(base, platform))
        base = base.at(image.digest)  # its tag may move meanwhile
        python = work.ask.python
        found = await work.thread(
            lambda: self._appender.installed(base, image, cache, work.say, python, work.check)
        )
        if not found.python:
            raise SourceError(
                f"{base.name} has no {python} that could be found, so nobody knows which packages "
                "fit it.",
                "Name an image with Python (%base=python:3.13-slim), or its path (%python=…).",
            )
        goal = wheels.Target(found.python, platform.architecture, found.packages, found.musl)
        try:
            brought = await wheels.bring(wanted, goal, cache, work.say)
        except wheels.NoWheel as error:
            raise SourceError(
                f"there is no wheel of {error} for Python {found.python} on {platform}, "
                "or no such package.",
                "Is the name right? Name a version that has one.",
            ) from None
        if brought.replaced:
            work.say(f"other versions than the image's: {', '.join(brought.replaced)}")
        if not brought.names:
            return base
        layer = await work.thread(lambda: _packed(brought.folder, work.check))
        change = Change(env=(("PYTHONPATH", _path(image)),))
        made = await work.append(base, layer, change)
        if not made.unchanged:
            work.say(f"packages are in {made.image}")
        return made.image


class _Cancelled(Exception):
    """Ends a thread whose cell was interrupted."""


class _Work:
    """What is done for one cell, in threads that have ended when the cell has.

    Args:
        appender: Shared by all cells.
        ask: The cell's wishes.
        target: The repository that gets images.
        emit: Shows events.
    """

    def __init__(self, appender: Appender, ask: Build, target: Reference, emit: Emit) -> None:
        self.ask = ask
        self.platform = Platform(ask.architecture)
        self._appender, self._target, self._emit = appender, target, emit
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._told: set[str] = set()
        _check.set(self.check)

    def say(self, text: str) -> None:
        """Show a sentence, from any thread."""
        self._loop.call_soon_threadsafe(self._emit, Notice(text))

    def check(self) -> None:
        """Raise where the cell was interrupted; threads call it often."""
        if self._stop.is_set():
            raise _Cancelled

    async def thread(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread; a cancellation stops it, and waits until it has ended."""
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # nobody else asks for it
            raise

    async def append(self, base: Reference, layer: Layer, change: Change) -> Appended:
        """Append one layer, or only say what would come of it."""

        def tell(digest: str, done: int, size: int) -> None:
            self.check()
            if size >= _TOLD and digest not in self._told:
                self._told.add(digest)
                self.say(
                    f"copying {base.name} once to {self._target.name} ({size / 1e6:,.0f} MB) …"
                )

        known = layer.digest, layer.diff_id, layer.size, layer.content
        sent = _Sent(*known, heard=self.check)
        return await self.thread(
            lambda: self._appender.append(
                base,
                self._target,
                [sent],
                change,
                self.platform,
                push=not self.ask.dry,
                tell=tell,
            )
        )


@dataclass(frozen=True, slots=True)
class _Sent(Layer):
    """A layer whose upload ends when its cell is interrupted."""

    heard: Callable[[], None]

    def open(self) -> bytes | IO[bytes]:
        """What a request takes as its body."""
        if isinstance(self.content, bytes):
            return self.content
        return cast(IO[bytes], _Body(self.content, self.heard))


class _Body(io.FileIO):
    """A file that says when it is read."""

    def __init__(self, path: Path, heard: Callable[[], None]) -> None:
        super().__init__(path)
        self._heard = heard

    def read(self, size: int | None = -1, /) -> bytes | Any:
        self._heard()
        return super().read(-1 if size is None else size)


def _target(text: str, ask: Build) -> Reference:
    if not text:
        spec = ask.spec.build
        wish = "packages" if spec.packages else "requirements" if spec.requirements else "builder"
        raise SpecError(
            "no registry is named that could hold the image.",
            "Write %registry=host/team/cells, or `%ciao config registry=host/team/cells`.",
            directive="builder" if ask.spec.builder else wish,
        )
    return replace(reference.parse(text), tag="", digest="")


def _layer(source: Source, folder: Path, heard: Callable[[], None]) -> Layer:
    """The layer of the cell and its files."""
    large = sum(file.size for file in source.all()) > _IN_MEMORY
    try:
        files = []
        for file in source.all():
            content = file.origin if file.data is None else file.data
            assert content is not None
            runs = file.origin is not None and bool(file.origin.stat().st_mode & 0o100)
            files.append(File(f"{WORKDIR}/{file.path}", content, runs))
        place = folder / "layer.tar.gz" if large else None
        return pack(files, place, [WORKDIR], heard)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"no space is left in {folder.parent} to pack the cell's files.",
                "Free some, or take less along with %files.",
            ) from None
        raise SourceError(
            f"{error.filename} cannot be read: {error.strerror}.",
            "Fix the file's permissions, or leave it out of %files.",
        ) from None


def _packed(folder: Path, heard: Callable[[], None]) -> Layer:
    """The layer of packages that were brought; packed once."""
    place, record = folder.with_suffix(".tar.gz"), folder.with_suffix(".json")
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


def _path(image: Image) -> str:
    own = [one for one in image.env.get("PYTHONPATH", "").split(":") if one and one != _SITE]
    return ":".join([_SITE, *own])
