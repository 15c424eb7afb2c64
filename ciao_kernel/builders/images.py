"""What the builders of images have in common: registries, threads, and the cell's own layer.

Whatever made the environment, the cell comes last, as one small layer on its digest.
"""

from __future__ import annotations

import asyncio
import errno
import io
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, SourceError, SpecError
from ciao_kernel.model import Artifact, Notice, Source
from ciao_kernel.oci import credentials, reference
from ciao_kernel.oci.append import Appended, Appender, Change
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.image import Image, Platform
from ciao_kernel.oci.layer import File, Layer, pack
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registries import Registries
from ciao_kernel.oci.registry import Registry
from ciao_kernel.plugins import Build, Emit, Workshop

WORKDIR = "/ciao"
"""As with a ConfigMap, so that a program finds itself in the same place by either builder."""
DOCKER_KEY = ".dockerconfigjson"
"""Under which a Secret of registries' passwords has them."""
_IN_MEMORY = 16 << 20
"""Bytes of files above which their layer is packed to the disk."""
_TOLD = 20 << 20
"""Bytes of a base's layer from which on its way from another registry is told."""

Result = TypeVar("Result")

_check: ContextVar[Callable[[], None]] = ContextVar("_check")
"""Of the cell that a thread works for: raises where that was interrupted."""


class Bench:
    """What the cells of one builder share: open registries, and what was read from them.

    Args:
        settings: Registry, and who signs for it.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        named = settings.registry_authority
        self.authority = Path(named).expanduser() if named else None
        self.registries = Registries(settings.plain_registries, self.authority, self._find)
        self.appender = Appender(self._registry)
        self._secret: tuple[str, dict[str, Any]] = ("", {})
        """Name and content of the Secret that was read last, as docker's ``config.json``."""

    async def work(self, ask: Build, emit: Emit) -> Work:
        """Begin the work for a cell.

        Raises:
            SpecError: No registry is named.
            ClusterFault: The Secret that is named cannot be read.
        """
        wanted = ask.spec.build
        target = _target(wanted.registry or self.settings.registry, ask)
        name, workshop = wanted.push_secret, ask.workshop
        # Whoever has signed in on this machine needs no right to read Secrets.
        if name and workshop and await asyncio.to_thread(credentials.find, target) is None:
            await self._read(name, workshop)
        return Work(self.appender, ask, target, emit)

    async def _read(self, name: str, workshop: Workshop) -> None:
        raw = (await workshop.secret(name)).get(DOCKER_KEY, b"")
        try:
            found = json.loads(raw)
            if not isinstance(found, dict):
                raise ValueError
        except (ValueError, RecursionError):
            raise SpecError(
                f"the Secret {name} is not one of registries' passwords: it has no {DOCKER_KEY} "
                "that could be read.",
                "`kubectl create secret docker-registry` makes one.",
                directive="pushSecret",
            ) from None
        if self._secret != (name, found):
            self._secret = name, found
            self.registries.forget()

    def _find(self, image: Reference) -> Credentials | None:
        name, config = self._secret
        return credentials.find(image) or credentials.of(config, image, f"the Secret {name}")

    def _registry(self, image: Reference) -> Registry:
        """Open a registry, unless nobody waits any more for what is asked of it again."""
        _check.get()()
        return self.registries.of(image)


class _Cancelled(Exception):
    """Ends a thread whose cell was interrupted."""


class Work:
    """What is done for one cell, in threads that have ended when the cell has.

    Args:
        appender: Shared by all cells.
        ask: The cell's wishes.
        target: The repository that gets images.
        emit: Shows events.
    """

    def __init__(self, appender: Appender, ask: Build, target: Reference, emit: Emit) -> None:
        self.ask, self.target, self.appender, self.emit = ask, target, appender, emit
        self.platform = Platform(ask.architecture)
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._told: set[str] = set()
        _check.set(self.check)

    def say(self, text: str) -> None:
        """Show a sentence, from any thread."""
        self._loop.call_soon_threadsafe(self.emit, Notice(text))

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

    async def inspect(self, base: Reference) -> Image:
        """Read an image.

        Raises:
            RegistryFault: There is none, or it cannot be read.
        """
        return await self.thread(lambda: self.appender.inspect(base, self.platform))

    async def deliver(self, base: Reference) -> Artifact:
        """Append the cell and its files to an image that has all else.

        Raises:
            SourceError: A file cannot be read.
            RegistryFault: A registry says no.
        """
        ask = self.ask
        layer = await self.thread(lambda: _layer(ask.source, ask.folder, self.check))
        made = await self.append(base, layer, Change(workdir=WORKDIR))
        self.emit(Notice(f"image {made.image}{' (unchanged)' if made.unchanged else ''}"))
        return Artifact(ask.source, ask.python, WORKDIR, image=str(made.image))

    async def carry(self, layer: Layer) -> Appended:
        """Make an image of nothing but some files, on their way to a pod that builds.

        Raises:
            RegistryFault: A registry says no.
        """
        known = layer.digest, layer.diff_id, layer.size, layer.content
        sent = _Sent(*known, heard=self.check)
        return await self.thread(lambda: self.appender.carry(self.target, sent, self.platform))

    async def append(self, base: Reference, layer: Layer, change: Change) -> Appended:
        """Append one layer, or only say what would come of it."""

        def tell(digest: str, done: int, size: int) -> None:
            self.check()
            if size >= _TOLD and digest not in self._told:
                self._told.add(digest)
                self.say(f"copying {base.name} once to {self.target.name} ({size / 1e6:,.0f} MB) …")

        known = layer.digest, layer.diff_id, layer.size, layer.content
        sent = _Sent(*known, heard=self.check)
        return await self.thread(
            lambda: self.appender.append(
                base,
                self.target,
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
