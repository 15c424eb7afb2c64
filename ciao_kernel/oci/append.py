"""Append layers to an image, using only the registry's API: no pod, no daemon, no root.

Content that is already in the registry is neither sent nor requested again. An image's tag is the
digest of all its inputs, so an unchanged cell costs two requests.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci import contents
from ciao_kernel.oci.auth import Scopes
from ciao_kernel.oci.derived_image import Change as Change
from ciao_kernel.oci.derived_image import config_of, manifest_of, packed, tag_of
from ciao_kernel.oci.image import ACCEPT, Image, Images, Platform, empty
from ciao_kernel.oci.interpreter import Installed
from ciao_kernel.oci.layer import Layer
from ciao_kernel.oci.layer_transfer import LayerTransfer, ProgressCallback
from ciao_kernel.oci.reference import Reference, digest_of
from ciao_kernel.oci.registry import Registry
from ciao_kernel.oci.repository import Repository, scope

_log = logging.getLogger(__name__)

_ATTEMPTS = 5

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Appended:
    """The resulting image.

    Args:
        image: The image, by its digest.
        tag: Tag of the image in its repository.
        unchanged: The image existed already.
    """

    image: Reference
    tag: str
    unchanged: bool


def _retried(
    work: Callable[Concatenate[Appender, Arguments], Result],
) -> Callable[Concatenate[Appender, Arguments], Result]:
    """Repeat a whole method after a temporary fault."""

    @functools.wraps(work)
    def patiently(self: Appender, /, *args: Arguments.args, **named: Arguments.kwargs) -> Result:
        wait = 0.5
        for attempt in range(_ATTEMPTS):
            try:
                return work(self, *args, **named)
            except RegistryFault as error:
                if not error.passing or attempt == _ATTEMPTS - 1:
                    raise
                _log.info("the work with a registry starts again: %s", error)
                self.forget()
                time.sleep(wait)
                wait *= 2
        raise AssertionError("the last attempt returns or raises")

    return patiently


class Appender:
    """Appends layers to images; serves many cells, and caches the base images.

    Args:
        registry: Returns the registry of an image.
    """

    def __init__(self, registry: Callable[[Reference], Registry]) -> None:
        self._registry = registry
        self._images = Images()
        self._layers = LayerTransfer()

    def forget(self) -> None:
        """Forget which layers the registries have: some may have been removed since."""
        self._layers.forget()

    @_retried
    def inspect(self, base: Reference, platform: Platform) -> Image:
        """Read an image's manifest and config.

        Raises:
            RegistryFault: The image does not exist, or cannot be read.
        """
        return self._images.read(self._readable(base), base.version, platform)

    @_retried
    def installed(
        self,
        base: Reference,
        image: Image,
        cache: Path,
        emit: Callable[[str], None],
        python: str = "python3",
        on_progress: Callable[[], None] = lambda: None,
    ) -> Installed:
        """Read the Python version and the packages of an image, see :func:`contents.installed`.

        Raises:
            RegistryFault: A layer cannot be read.
        """
        return contents.installed(self._readable(base), image, cache, emit, python, on_progress)

    @_retried
    def find(self, target: Reference, tag: str) -> Reference | None:
        """Return the image of a tag; None if it does not exist.

        Raises:
            RegistryFault: The registry refuses, or does not answer.
        """
        try:
            digest = self._readable(target).has_manifest(tag, ACCEPT)
        except RegistryFault as error:
            if error.code not in (401, 403):
                raise
            # Docker Hub tells only those who may push that a repository does not exist yet.
            scopes: Scopes = (scope(target.repository, "pull,push"),)
            try:
                there = Repository(self._registry(target), target, scopes)
                digest = there.has_manifest(tag, ACCEPT)
            except RegistryFault:
                raise error from None
        return target.at(digest) if digest else None

    @_retried
    def append(
        self,
        base: Reference,
        target: Reference,
        layers: Sequence[Layer],
        change: Change,
        platform: Platform,
        *,
        force: bool = False,
        push: bool = True,
        tell: ProgressCallback | None = None,
    ) -> Appended:
        """Create the image of a base and some layers, unless it exists.

        Args:
            base: The base image.
            target: Repository for the new image.
            layers: The new layers, in order.
            change: Change of the config.
            platform: Platform of the nodes.
            force: Push everything again: a part of the image in the registry was lost.
            push: Push the image. If false, only compute it; an image that is not pushed can be the
                base of another.
            tell: Receives the progress of base layers that come from another registry.

        Raises:
            RegistryFault: A registry refuses, or does not answer.
        """
        if force:
            self.forget()
        # The scope of the push comes first: some registries use only the first one.
        scopes: Scopes = (scope(target.repository, "pull,push"),)
        if base.host == target.host and base.repository != target.repository:
            scopes = (*scopes, scope(base.repository, "pull"))
        there = Repository(self._registry(target), target, scopes)
        origin, image = self._base(base, there, scopes, platform)
        tag = tag_of(image, layers, change)
        if not force and (digest := there.has_manifest(tag, ACCEPT)):
            return Appended(target.at(digest), tag, unchanged=True)
        config = config_of(image, layers, change)
        body = packed(config)
        manifest = manifest_of(image, layers, body)
        raw = packed(manifest)
        made = Image(digest_of(raw), image.media_type, manifest, config)
        if push:
            opened = self._layers.bring(origin, there, image, tell)
            self._layers.upload(there, layers, body, opened)
            there.put_manifest(tag, made.media_type, raw)
        self._images.keep(made, platform)
        return Appended(target.at(made.digest), tag, unchanged=False)

    @_retried
    def push_context(self, target: Reference, layer: Layer, platform: Platform) -> Appended:
        """Create an image of a single layer, to transfer files to a builder.

        Args:
            target: Repository for the image.
            layer: The files.
            platform: Platform of the reader.

        Raises:
            RegistryFault: A registry refuses, or does not answer.
        """
        there = Repository(self._registry(target), target, (scope(target.repository, "pull,push"),))
        nothing = empty(platform)
        tag = tag_of(nothing, [layer], Change())
        if digest := there.has_manifest(tag, ACCEPT):
            return Appended(target.at(digest), tag, unchanged=True)
        body = packed(config_of(nothing, [layer], Change()))
        raw = packed(manifest_of(nothing, [layer], body))
        self._layers.upload(there, [layer], body)
        there.put_manifest(tag, nothing.media_type, raw)
        return Appended(target.at(digest_of(raw)), tag, unchanged=False)

    def _base(
        self, base: Reference, there: Repository, scopes: Scopes, platform: Platform
    ) -> tuple[Repository, Image]:
        """Read the base; if possible, with the token that is also for the push."""
        own = self._readable(base)
        if own.registry is there.registry:
            shared = Repository(there.registry, base, scopes)
            try:
                return shared, self._images.read(shared, base.version, platform)
            except RegistryFault as error:
                if error.code not in (401, 403) or not own.registry.scoped:
                    raise
        return own, self._images.read(own, base.version, platform)

    def _readable(self, image: Reference) -> Repository:
        scopes: Scopes = (scope(image.repository, "pull"),)
        return Repository(self._registry(image), image, scopes)
