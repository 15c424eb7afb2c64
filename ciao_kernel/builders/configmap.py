"""The default builder for clusters: the source in a ConfigMap, mounted as plain files.

No image, no registry, no wait. A ConfigMap holds 1 MiB, and its keys cannot contain a slash. The
program and a few modules get one key each and are read-only for a replica. Files of ``%files``, and
many modules, are packed into one key that an init container unpacks: each replica has its own copy,
may write to the files and their folders, and executable files stay executable.

If the source is too large, it goes into an image instead, provided that a registry is configured
and no builder is named.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.images import automatic
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input.held_file import open_checked
from ciao_kernel.errors import SourceError
from ciao_kernel.model import Artifact, Manifest, Notice, Source, SourceFile
from ciao_kernel.plugins import Build, Emit

LIMIT = 1024 * 1024
"""Bytes of one ConfigMap, keys included (core/v1 MaxSecretSize, which is the limit for both)."""

WORKDIR = "/ciao"
"""Folder of the program. It holds nothing else, so no module of Python is shadowed."""

_FEW = 16
"""Largest number of modules that get a mount each; every mount costs the node a little."""
_PROGRAM = "program.py"
_PACKED = "files.tar.gz"
_UNPACK = (
    "import tarfile; tarfile.open('/ciao-packed/files.tar.gz').extractall('/ciao', filter='data')"
)
_UNPACK_OLD = "import tarfile; tarfile.open('/ciao-packed/files.tar.gz').extractall('/ciao')"


class ConfigMapBuilder:
    """``%builder=configmap``."""

    name = "configmap"
    backend = "kubernetes"
    supported_fields = frozenset[str]()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._append: AppendBuilder | None = None

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Make the ConfigMap's manifest; the backend creates the object.

        Raises:
            SourceError: The source is too large for a ConfigMap; names the largest files. Or a
                file cannot be read.
            RegistryFault: It is too large, and a request to the registry fails.
        """
        try:
            return await asyncio.to_thread(_artifact, ask.source, ask.python, ask.job)
        except _TooLarge as error:
            registry = ask.spec.build.registry or self._settings.registry
            if not registry or not ask.image or not automatic(ask, self._settings):
                raise
            emit(Notice(f"{error.message.partition(':')[0]}: they are put into an image (append)."))
            self._append = self._append or AppendBuilder(self._settings)
            return await self._append.build(ask, emit)
        except OSError as error:
            raise SourceError(
                f"{error.filename} cannot be read: {error.strerror}.",
                "Fix the file, or leave it out of %files.",
            ) from None


class _TooLarge(SourceError):
    """Code and files do not fit into a ConfigMap."""


def _artifact(source: Source, python: str, job: str) -> Artifact:
    entry, others = source.entry, source.all()[1:]
    # A key allows fewer characters than a file name.
    content = {_PROGRAM: _bytes(entry)}
    keys = {entry.path: _PROGRAM}
    raw = sum(file.size for file in others)
    pack = bool(source.files) or len(others) > _FEW or raw + len(content[_PROGRAM]) > LIMIT // 2
    if pack and raw > 64 * LIMIT:  # even text does not compress that well
        raise _too_large(source)
    if pack:
        content[_PACKED] = _packed(others)
    else:
        for number, file in enumerate(others):
            keys[file.path] = f"file-{number}"
            content[keys[file.path]] = _bytes(file)
    if sum(len(key) + len(data) for key, data in content.items()) > LIMIT - 4096:
        raise _too_large(source)
    total = hashlib.sha256()
    for key, data in sorted(content.items()):
        total.update(f"{key}\0{len(data)}\0".encode() + data)
    # The name depends on the content: for a ConfigMap that is created again under an old name, a
    # kubelet may still serve the old content from its cache.
    name = f"{job}-{total.hexdigest()[:10]}"
    volumes: list[Manifest] = [
        # A folder that is writable for any user of the image.
        {"name": "work", "emptyDir": {}},
        {"name": "source", "configMap": {"name": name}},
    ]
    work: Manifest = {"name": "work", "mountPath": WORKDIR}
    mounts = [work] + [
        # With subPath each file is a plain file, and a traceback shows its path. Mounted as a
        # folder, the ConfigMap would be links into ..2026_11_21_…/.
        {"name": "source", "mountPath": f"{WORKDIR}/{path}", "subPath": key, "readOnly": True}
        for path, key in keys.items()
    ]
    return Artifact(
        source,
        python,
        WORKDIR,
        objects=(_config_map(name, content),),
        volumes=tuple(volumes),
        mounts=tuple(mounts),
        init_containers=(_unpacking(python, work),) if pack else (),
    )


def _unpacking(python: str, work: Manifest) -> Manifest:
    """Return the container that unpacks files into the working folder: by tar without Python."""
    script = f"import sys; exec({_UNPACK!r} if hasattr(__import__('tarfile'), 'data_filter') "
    script += f"else {_UNPACK_OLD!r})"
    place = f"/ciao-packed/{_PACKED}"
    packed = {"name": "source", "mountPath": place, "subPath": _PACKED, "readOnly": True}
    return {
        "name": "unpack",
        "command": [python, "-c", script] if python else ["tar", "-xzf", place, "-C", WORKDIR],
        "volumeMounts": [work, packed],
    }


def _config_map(name: str, content: dict[str, bytes]) -> Manifest:
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for key, data in content.items():
        try:
            text[key] = data.decode()
        except UnicodeDecodeError:
            binary[key] = base64.b64encode(data).decode()
    made: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "immutable": True,
        "data": text,
    }
    return made | ({"binaryData": binary} if binary else {})


def _bytes(file: SourceFile) -> bytes:
    if file.data is not None:
        return file.data
    assert file.origin is not None
    with open_checked(file.origin) as opened:
        return opened.read()


def _packed(files: tuple[SourceFile, ...]) -> bytes:
    """Pack files; the same files always give the same bytes."""
    import gzip  # imported late: a kernel imports this module at its start
    import io
    import tarfile

    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in sorted(files, key=lambda file: file.path):
            data = _bytes(file)
            member = tarfile.TarInfo(file.path)
            member.size, member.mtime, member.mode = len(data), 1_000_000_000, 0o644
            if file.origin is not None and file.origin.stat().st_mode & 0o100:
                member.mode = 0o755
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _too_large(source: Source) -> _TooLarge:
    largest = sorted(source.all(), key=lambda file: -file.size)[:3]
    names = ", ".join(f"{file.path} ({file.size / LIMIT:,.1f} MiB)" for file in largest)
    total = sum(file.size for file in source.all())
    return _TooLarge(
        f"code and files are too large for a ConfigMap: {total / LIMIT:,.1f} MiB in all, "
        f"and the limit is 1 MiB. The largest: {names}.",
        "%registry and %builder=append put them into an image. Or send less with %files or "
        "%input, or read the data from a bucket or a database in the program.",
    )
