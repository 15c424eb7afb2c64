"""The default builder for clusters: the source in a ConfigMap, mounted as plain files.

No image, no registry, no wait. A ConfigMap holds a MiB, and its keys hold no slash: the program
and a few modules are a key each, which a replica can only read. Files of ``%files``, and many
modules, are packed into one key that an init container unpacks: they are the replica's own, which
may write to them and into their folders, and what is executable stays so.

What is too large goes into an image instead, where there is a registry and nobody named a builder.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.images import automatic
from ciao_kernel.config import Settings
from ciao_kernel.errors import SourceError
from ciao_kernel.model import Artifact, Manifest, Notice, Source, SourceFile
from ciao_kernel.plugins import Build, Emit

LIMIT = 1024 * 1024
"""Bytes of one ConfigMap, keys and all (core/v1 MaxSecretSize, which counts for both)."""

WORKDIR = "/ciao"
"""The program's folder: nothing else lies there, so no module of Python's is shadowed."""

_FEW = 16
"""Modules that get a mount each; each mount costs the node a little."""
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
    brings = frozenset[str]()

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._append: AppendBuilder | None = None

    async def build(self, ask: Build, emit: Emit) -> Artifact:
        """Make the ConfigMap's manifest; the backend creates it.

        Raises:
            SourceError: It is too large for one; names the largest files.
            RegistryFault: It is, and the registry that could take it says no.
        """
        try:
            return await asyncio.to_thread(_artifact, ask.source, ask.python, ask.job)
        except _TooLarge as error:
            registry = ask.spec.build.registry or self._settings.registry
            if not registry or not ask.image or not automatic(ask, self._settings):
                raise
            emit(Notice(f"{error.message.partition(':')[0]}: they travel in an image (append)."))
            self._append = self._append or AppendBuilder(self._settings)
            return await self._append.build(ask, emit)


class _TooLarge(SourceError):
    """Code and files do not fit."""


def _artifact(source: Source, python: str, job: str) -> Artifact:
    entry, others = source.entry, source.all()[1:]
    # A key may hold fewer characters than the name of a file.
    content = {_PROGRAM: _bytes(entry)}
    keys = {entry.path: _PROGRAM}
    raw = sum(file.size for file in others)
    pack = bool(source.files) or len(others) > _FEW or raw + len(content[_PROGRAM]) > LIMIT // 2
    if pack and raw > 64 * LIMIT:  # even text does not get that small
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
    # Content in the name: a ConfigMap that is made again under an old name may still be served
    # with its old content by a kubelet that has it in its cache.
    name = f"{job}-{total.hexdigest()[:10]}"
    volumes: list[Manifest] = [
        # A folder of its own to write to, whatever user the image runs as.
        {"name": "work", "emptyDir": {}},
        {"name": "source", "configMap": {"name": name}},
    ]
    work: Manifest = {"name": "work", "mountPath": WORKDIR}
    mounts = [work] + [
        # By subPath a file is a plain file, and a traceback shows its path. As a folder the
        # ConfigMap would be links into ..2026_11_21_…/.
        {"name": "source", "mountPath": f"{WORKDIR}/{path}", "subPath": key, "readOnly": True}
        for path, key in keys.items()
    ]
    init: list[Manifest] = []
    if pack:
        script = f"import sys; exec({_UNPACK!r} if hasattr(__import__('tarfile'), 'data_filter') "
        script += f"else {_UNPACK_OLD!r})"
        packed: Manifest = {
            "name": "source",
            "mountPath": f"/ciao-packed/{_PACKED}",
            "subPath": _PACKED,
            "readOnly": True,
        }
        init.append(
            {
                "name": "unpack",
                "command": [python, "-c", script],
                "volumeMounts": [work, packed],
            }
        )
    return Artifact(
        source,
        python,
        WORKDIR,
        objects=(_config_map(name, content),),
        volumes=tuple(volumes),
        mounts=tuple(mounts),
        init_containers=tuple(init),
    )


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
    return file.origin.read_bytes()


def _packed(files: tuple[SourceFile, ...]) -> bytes:
    """Pack files; the same files are the same bytes, whenever and by whomever."""
    import gzip  # not before it is needed: a kernel reads this module when it starts
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
        f"and it holds 1 MiB. The largest: {names}.",
        "With %registry and %builder=append they travel in an image. Or take less along with "
        "%files or %input, or read the data from a bucket or a database in the program.",
    )
