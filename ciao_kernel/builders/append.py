"""``%builder=append``: adds the cell, its files and its packages to an image, as layers.

Needs only the registry's API: no pod, no daemon, no root. Packages are added first, as an image of
their own, so that an edited cell adds only one small layer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import inspect
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ciao_kernel import disk_cache, private_files
from ciao_kernel.builders import wheels
from ciao_kernel.builders.images import ImageBuild, SharedBuildState, automatic
from ciao_kernel.builders.kaniko import KanikoBuilder, unshared_sources
from ciao_kernel.config import Settings
from ciao_kernel.delivery.packages import pip, pth_files, requirements
from ciao_kernel.errors import CiaoError, SourceError
from ciao_kernel.model import Artifact
from ciao_kernel.oci import contents, reference
from ciao_kernel.oci.append import Change
from ciao_kernel.oci.contents import Unreadable
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.layer import File, Layer, pack
from ciao_kernel.oci.reference import Reference
from ciao_kernel.plugins import Build, Emit

_SITE = "/opt/ciao/site"
"""Folder of the packages in the image. Each set of packages has a folder of its own in it: a base
may have an older set, and two versions of a package in one folder would be mixed."""
_MAX_RECORD = 1 << 16
"""Bytes of a record in the cache."""


class _NeedsBuildPod(SourceError):
    """A package must be built, or chosen by the image's own pip: only a pod can do that."""


def _no_wheel(
    error: wheels.NoWheel, wanted: requirements.Requirements, where: str
) -> _NeedsBuildPod:
    location = wanted.place(error.by or error.wish)
    needed_by = f" ({error.by} needs it)" if error.by else ""
    available = f"; it has {error.versions}." if error.versions else ", or no such package."
    return _NeedsBuildPod(
        (f"{location}: " if location else "")
        + f"there is no wheel of {error.wish}{needed_by} for {where}{available}",
        "Is the name right? Name a version that has a wheel, or write %builder=kaniko: a pod can "
        "build the others if the image has the tools for it, such as a compiler.",
    )


def _check_sources(error: CiaoError, names: Sequence[str]) -> None:
    """Check that a pod takes packages from where pip takes them here.

    Args:
        error: The reason why a pod is needed.
        names: Settings by which pip takes them from elsewhere here.

    Raises:
        SourceError: There are such settings: somebody else may have a package of the same name on
            the public index.
    """
    if names:
        raise SourceError(
            f"{error.message.rstrip('.')}; a pod could build the image, but it does not have the "
            f"{' and '.join(names)} of pip on this machine.",
            "Name an index for pods: %pipIndex=URL, or a Secret with a pip.conf: %pipSecret=NAME. "
            "%builder=kaniko takes the index of the image.",
        )


class AppendBuilder:
    """``%builder=append``.

    Args:
        settings: Registry, its certificate authority, and the folder of caches.
    """

    name = "append"
    backend = "kubernetes"
    supported_fields = frozenset({"packages", "requirements", "base"})

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._shared_state = SharedBuildState(settings)
        self._kaniko: KanikoBuilder | None = None

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Append, and return the image by its digest.

        Raises:
            SpecError: No registry is named.
            SourceError: A file cannot be read, or a package has no wheel and no pod may build it.
            RegistryFault: A request to a registry fails.
        """
        spec = ask.spec.build
        work = await self._shared_state.work(ask, emit)
        wanted = requirements.read(spec, ask.work)
        base, path = reference.parse(spec.base or ask.image), ""
        if wanted.packages:
            try:
                base, path = await self._environment(base, wanted, work)
            except (_NeedsBuildPod, Unreadable) as error:
                if not await self._may_use_pods(ask):
                    raise
                image = await work.inspect(base)
                _check_sources(error, unshared_sources(ask, self._settings, wanted, image))
                work.say(f"{error.message.rstrip('.')}: a pod builds the image (kaniko).")
                self._kaniko = self._kaniko or KanikoBuilder(self._settings)
                return await self._kaniko.build(ask, emit)
        artifact = await work.deliver(base)
        # A PYTHONPATH of the user would hide that of the image: the backend joins both.
        return replace(artifact, env=(("PYTHONPATH", path),)) if path else artifact

    async def _may_use_pods(self, ask: Build) -> bool:
        """Return whether kaniko may take over: no builder is named, and the user may run pods."""
        if not automatic(ask, self._settings) or ask.build_cluster is None:
            return False
        return await ask.build_cluster.free()

    async def _environment(
        self, base: Reference, wanted: requirements.Requirements, work: ImageBuild
    ) -> tuple[Reference, str]:
        """Return the base with the packages, which many cells share, and its PYTHONPATH."""
        for name in (contents.CACHE, "wheels", "chosen"):
            cache = self._settings.own_folder.prepare("cache", name).parent
        platform = work.platform
        image = await work.inspect(base)
        base = base.at(image.digest)  # the tag may be moved meanwhile
        python = work.ask.python
        with work.step(f"reading {base.name}"):
            installed = await work.thread(
                lambda: work.appender.installed(base, image, cache, work.say, python, work.check)
            )
        if not installed.python:
            raise _NeedsBuildPod(
                f"no {python} was found in {base.name}, so packages cannot be chosen for it.",
                "Name an image with Python (%base=python:3.13-slim), or the path of its Python "
                "(%python=…).",
            )
        target = wheels.Target(
            installed.python,
            platform.architecture,
            installed.packages,
            installed.musl,
            installed.glibc,
        )
        try:
            downloaded = await wheels.download(
                wanted, target, cache, work.say, self._settings.cache_days, work.emit
            )
        except wheels.NoWheel as error:
            where = f"Python {installed.python} on {platform}{target.assumed}"
            raise _no_wheel(error, wanted, where) from None
        if downloaded.made:
            days = self._settings.cache_days
            for name in (contents.CACHE, *contents.FORMER_CACHES):
                await work.thread(partial(disk_cache.prune, cache / name, days))
        if downloaded.replaced:
            work.say(f"packages of the image are replaced: {', '.join(downloaded.replaced)}")
        before = _python_path(image)
        if not downloaded.names:
            has_packages = any(f"{one}/".startswith(f"{_SITE}/") for one in before)
            return base, ":".join(before) if has_packages else ""
        site = _site(downloaded.folder.name, before)
        with work.step("packing packages"):
            layer = await work.thread(lambda: _packed_layer(downloaded.folder, site, work.check))
        path = ":".join([site, *(one for one in before if one != site)])
        change = Change(env=(("PYTHONPATH", path),))
        appended = await work.append(base, [layer], change)
        if not appended.unchanged:
            work.say(f"packages are in {appended.image.name}")
        return appended.image, path


def _packed_layer(folder: Path, site: str, check: Callable[[], None]) -> Layer:
    """Return the layer of the downloaded packages; it is packed once.

    Args:
        folder: The packages.
        site: Their folder in the image.
        check: Raises if the cell was interrupted.
    """
    hook = inspect.getsource(pth_files).encode()
    made_for = hashlib.sha256(site.encode() + hook).hexdigest()
    packed = folder.with_name(site.rpartition("/")[2])
    archive, record = packed.with_suffix(".tar.gz"), packed.with_suffix(".json")
    for entry in (archive, record):
        disk_cache.used(entry)  # protects it from removal until it is sent
    with contextlib.suppress(OSError, ValueError, KeyError):
        cached = json.loads(private_files.read(record, _MAX_RECORD))
        known = cached["made_for"] == made_for and archive.stat().st_size == cached["size"]
        if known and disk_cache.is_own(archive):
            return Layer(cached["digest"], cached["diff_id"], cached["size"], archive)
    folder = folder.resolve()  # links above it are of this machine, and not the packages'
    files = [
        File(f"{site}/{path.relative_to(folder)}", path, bool(path.stat().st_mode & 0o100))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    if any(folder.glob("*.pth")) and not (folder / "sitecustomize.py").exists():
        files.append(File(f"{site}/sitecustomize.py", hook))
    try:
        # Two kernels may pack at once.
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            layer = pack(files, Path(temporary) / "layer", on_progress=lambda _: check())
            cached = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
            cached["made_for"] = made_for
            (Path(temporary) / "record").write_text(json.dumps(cached))
            for name in ("layer", "record"):
                (Path(temporary) / name).chmod(0o600)
            (Path(temporary) / "layer").replace(archive)
            (Path(temporary) / "record").replace(record)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise pip.full() from None
        raise
    return replace(layer, content=archive)


def _python_path(image: Image) -> list[str]:
    return [one for one in image.env.get("PYTHONPATH", "").split(":") if one]


def _site(name: str, before: Sequence[str]) -> str:
    """Return the folder for a set of packages in an image.

    Args:
        name: Digest of the set.
        before: The image's PYTHONPATH. Another set may hide the same one in it: then the set gets a
            further folder, which comes first again.
    """
    site = f"{_SITE}/{name}"
    same = [one for one in before if one.startswith(site)]
    if same and same[0] == before[0]:
        return same[0]
    return f"{site}-{len(same)}" if same else site
