"""Common parts of the builders of images: registries, threads, and the cell's own layer.

The cell is always the last small layer, on the digest of its environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Iterable
from contextvars import ContextVar, copy_context
from dataclasses import replace
from typing import Any, Self, TypeVar

from ciao_kernel.builders.layers import WORKDIR as WORKDIR
from ciao_kernel.builders.layers import Sent, packed
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, RegistryFault, SpecError
from ciao_kernel.model import Artifact, Notice
from ciao_kernel.oci import reference
from ciao_kernel.oci.accounts import DOCKER_KEY as DOCKER_KEY
from ciao_kernel.oci.accounts import Account, Accounts
from ciao_kernel.oci.append import Appended, Appender, Change
from ciao_kernel.oci.image import Image, Platform
from ciao_kernel.oci.layer import Layer
from ciao_kernel.oci.reference import Reference
from ciao_kernel.oci.registry import Registry
from ciao_kernel.plugins import Build, BuildCluster, Emit, Step

_REPORTED_FROM = 20 << 20
"""Size of a base's layer, in bytes, from which its copy between registries is reported."""
_STOP_SECONDS = 1.0
"""Seconds within which a thread may end after an interrupt."""

Result = TypeVar("Result")

_working: ContextVar[ImageBuild] = ContextVar("_working")
"""The work that a thread belongs to."""


class SharedBuildState:
    """State that the cells of one builder share: open registries and their answers.

    Args:
        settings: Registry and its certificate authority.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.authority = settings.authority_file
        self.appender = Appender(_registry)
        self._accounts: dict[tuple[str, str], Accounts] = {}
        """Credentials by namespace and Secret."""

    async def work(self, ask: Build, emit: Emit) -> ImageBuild:
        """Begin the work for a cell.

        Raises:
            SpecError: No registry is named.
            ClusterFault: The named Secret cannot be read.
        """
        wanted = ask.spec.build
        target = _target(wanted.registry or self.settings.registry, ask)
        account = self._account(wanted.push_secret or self.settings.push_secret, ask.build_cluster)
        await account.ensure_credentials(target)
        return ImageBuild(self.appender, ask, target, emit, account)

    def _account(self, name: str, build_cluster: BuildCluster | None) -> Account:
        key = (build_cluster.namespace, name) if name and build_cluster else ("", "")
        if key not in self._accounts:
            plain = self.settings.plain_registries
            self._accounts[key] = Accounts(plain, self.authority, key[1])
        return Account(self._accounts[key], build_cluster)


class _Cancelled(Exception):
    """Ends a thread whose cell was interrupted."""


class ImageBuild:
    """Work of one cell, done in threads that end with the cell.

    Args:
        appender: Appender that all cells share.
        ask: Build request of the cell.
        target: Repository that images are pushed to.
        emit: Shows events.
        account: Registry credentials of the cell.
    """

    def __init__(
        self, appender: Appender, ask: Build, target: Reference, emit: Emit, account: Account
    ) -> None:
        self.ask, self.target, self.appender, self.emit = ask, target, appender, emit
        self.account = account
        self.platform = Platform(ask.architecture)
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._told: set[str] = set()
        _working.set(self)

    def say(self, text: str) -> None:
        """Show a sentence, from any thread."""
        self._loop.call_soon_threadsafe(self.emit, Notice(text))

    def step(self, name: str, *, timed: bool = True) -> Step:
        """Return a long step of this work, see :class:`ciao_kernel.plugins.Step`."""
        return Step(self.emit, name, timed=timed)

    def check(self) -> None:
        """Raise if the cell was interrupted; threads call it often."""
        if self._stop.is_set():
            raise _Cancelled

    async def thread(self, work: Callable[[], Result]) -> Result:
        """Run work in a thread; a cancellation stops the thread and waits for its end.

        The wait is short: a thread that waits for a registry notices nothing. Such a thread ends
        later by itself, and delays neither the cell nor the end of this process.
        """
        loop, context = self._loop, copy_context()
        done: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            settle: Callable[[], None]
            try:
                settle = functools.partial(done.set_result, context.run(work))
            except BaseException as error:
                settle = functools.partial(done.set_exception, error)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name="ciao-image", daemon=True).start()
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            self._stop.set()
            done.add_done_callback(_forget)
            await asyncio.wait({done}, timeout=_STOP_SECONDS)
            raise

    async def inspect(self, base: Reference) -> Image:
        """Read an image.

        Raises:
            RegistryFault: The image does not exist, or cannot be read.
        """
        return await self._asking(base, lambda: self.appender.inspect(base, self.platform))

    async def deliver(self, base: Reference) -> Artifact:
        """Append the cell and its files to an image that has everything else.

        Raises:
            SourceError: A file cannot be read.
            RegistryFault: A request to a registry fails.
        """
        ask = self.ask
        with self.step("packing files") as step:

            def note(done: int, total: int) -> None:
                self.check()
                step.at(done, total)

            layers = await self.thread(lambda: packed(ask.source, ask.folder, note))
        made = await self.append(base, layers, Change(workdir=WORKDIR))
        self.emit(Notice(f"image {made.image}{' (unchanged)' if made.unchanged else ''}"))
        return Artifact(
            ask.source,
            ask.python,
            WORKDIR,
            image=str(made.image),
            architecture=self.platform.architecture,
        )

    async def push_context(self, layer: Layer) -> Appended:
        """Make an image that only carries files to the pod of a build.

        Raises:
            RegistryFault: A request to a registry fails.
        """
        with _Pushing(self, self.target) as pushing:
            sent = pushing.sent(layer)
            return await self.thread(
                lambda: self.appender.push_context(self.target, sent, self.platform)
            )

    async def append(self, base: Reference, layers: Iterable[Layer], change: Change) -> Appended:
        """Append layers; in a dry run, only return what the result would be."""

        def tell(digest: str, done: int, size: int) -> None:
            self.check()
            if size >= _REPORTED_FROM and digest not in self._told:
                self._told.add(digest)
                self.say(f"copying {base.name} once to {self.target.name} ({size / 1e6:,.0f} MB) …")
            pushing.at(digest, done, size, f"a layer of {base.name}")

        with _Pushing(self, self.target) as pushing:
            sent = [pushing.sent(layer) for layer in layers]
            return await self._asking(
                base,
                lambda: self.appender.append(
                    base,
                    self.target,
                    sent,
                    change,
                    self.platform,
                    push=not self.ask.dry,
                    tell=tell,
                ),
            )

    async def _asking(self, base: Reference, work: Callable[[], Result]) -> Result:
        """Run work that reads a base; its registry may need the credentials of the Secret."""
        unread = None
        try:
            await self.account.ensure_credentials(base)
        except ClusterFault as fault:
            unread = fault  # most bases are public
        try:
            return await self.thread(work)
        except RegistryFault as error:
            if unread and error.code == 401:
                raise unread from None
            raise


class _Pushing:
    """The step that sends layers, one after the other; layers that are there are not counted.

    Args:
        work: Work of the cell.
        target: Repository of the layers.
    """

    def __init__(self, work: ImageBuild, target: Reference) -> None:
        self._work = work
        self._step = work.step(f"pushing to {target.name}", timed=False)
        self._sent = dict[str, int]()
        """Sent bytes, by digest."""

    def __enter__(self) -> Self:
        self._step.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        total = sum(self._sent.values())
        self._step.at(total, total)
        self._step.__exit__(*error)

    def at(self, digest: str, done: int, size: int, what: str = "") -> None:
        """Note how much of a layer is sent."""
        self._sent[digest] = done
        self._step.at(done, size, detail=what)

    def sent(self, layer: Layer) -> Sent:
        """Return the layer as it is sent: an interrupt of the cell ends its upload."""

        def on_progress(done: int) -> None:
            self._work.check()
            self.at(layer.digest, done, layer.size)

        return Sent(layer.digest, layer.diff_id, layer.size, layer.content, on_progress)


def _registry(image: Reference) -> Registry:
    """Open the registry of an image; raise if the cell was interrupted."""
    work = _working.get()
    work.check()
    return work.account.registries.of(image)


def automatic(ask: Build, settings: Settings) -> bool:
    """Return whether another builder may take over: the user has named none."""
    return (ask.spec.builder or settings.builder) in ("", "auto")


def _forget(done: asyncio.Future[Any]) -> None:
    """Discard the error of a thread whose result is no longer needed."""
    if not done.cancelled():
        done.exception()


def _target(text: str, ask: Build) -> Reference:
    if not text:
        spec = ask.spec.build
        wish = "packages" if spec.packages else "requirements" if spec.requirements else "builder"
        raise SpecError(
            "no registry is named for the image.",
            "Write %registry=host/team/cells, or `%ciao config registry=host/team/cells`.",
            directive="builder" if ask.spec.builder else wish,
        )
    return replace(reference.parse(text), tag="", digest="")
