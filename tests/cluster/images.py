"""Packs layers and writes images into the registry's storage, as its own pushes would leave it.

So no registry has to run for it, and no byte is stored a second time. Layers stay uncompressed:
gzip of two gigabytes costs a minute and saves nothing on one machine.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from tests.cluster.debian import Layer
from tests.cluster.programs import key as program_key
from tests.cluster.programs import programs
from tests.cluster.recipes import FORMAT, IMAGES, TREES, Image
from tests.cluster.store import digest, made, make

_TIME = 1_000_000_000  # of programs and single files, so that equal ones get equal digests
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def registry_ready() -> bool:
    """Tell whether the images that every cluster has are in the cache."""
    return made("registry", key(IMAGES)) is not None


def registry(log: Path | None = None) -> Path:
    """Return the storage of a registry with the images that every cluster has."""

    def build(folder: Path) -> None:
        for image in IMAGES:
            write(image, folder, log)

    return make("registry", key(IMAGES), build)


def packed(layer: Layer, log: Path | None = None) -> Path:
    """Return the folder with `layer.tar` and its digest, packed unless it is there."""

    def build(folder: Path) -> None:
        if layer in TREES:
            tree = layer.folder(log)
            _pack(tree, folder)
        else:
            tree = folder.with_suffix(".tree")
            shutil.rmtree(tree, ignore_errors=True)
            layer.build(tree, log)
            _pack(tree, folder)
            shutil.rmtree(tree)

    return make(f"blob-{layer.name}", digest(layer.key, FORMAT), build)


def packed_ready(layer: Layer) -> bool:
    """Tell whether the packed form of a layer is in the cache."""
    return made(f"blob-{layer.name}", digest(layer.key, FORMAT)) is not None


def key(images: Sequence[Image]) -> str:
    """Return the digest of all that decides what these images hold."""
    return digest(
        FORMAT,
        [
            (
                image.name,
                image.layer and image.layer.key,
                [program_key(module) for module, _, _ in image.programs],
                repr(image),
            )
            for image in images
        ],
    )


class _Digesting:
    """A file that knows the digest of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)


def _pack(tree: Path, folder: Path) -> None:
    with (folder / "layer.tar").open("wb") as file:
        out = _Digesting(file)
        with tarfile.open(
            fileobj=out, mode="w|", bufsize=1 << 20, format=tarfile.PAX_FORMAT
        ) as tar:  # type: ignore[call-overload]
            for member, path in _members(tree):
                if member.size:
                    with path.open("rb") as content:
                        tar.addfile(member, content)
                else:
                    tar.addfile(member)
    (folder / "digest").write_text(f"sha256:{out.sha256.hexdigest()}")


def _members(tree: Path) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    """Yield what a layer's tar holds. The overlay's marks become the image's (OCI layer spec)."""
    for at, folders, files in os.walk(tree):
        folders.sort()
        for name in sorted(folders + files):
            path = Path(at) / name
            member = tarfile.TarInfo(str(path.relative_to(tree)))
            status = path.lstat()
            # Python believes in what it compiled if the source's time is the same.
            member.mtime = int(status.st_mtime)
            member.uid, member.gid = status.st_uid, status.st_gid
            member.mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                member.name = str(Path(member.name).with_name(f".wh.{name}"))
            elif stat.S_ISLNK(status.st_mode):
                member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
            elif stat.S_ISDIR(status.st_mode):
                member.type = tarfile.DIRTYPE
                if _opaque(path):
                    yield tarfile.TarInfo(f"{member.name}/.wh..wh..opq"), path
            elif stat.S_ISREG(status.st_mode):
                member.size = status.st_size
            else:
                continue  # devices and sockets: the runtime makes its own
            yield member, path


def _opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, "trusted.overlay.opaque") == b"y"
    except OSError:
        return False


def write(image: Image, storage: Path, log: Path | None = None) -> None:
    """Write one image into a registry's storage, which a registry may be using.

    No file that is there is changed: it may be a link to one in the cache.
    """
    name, _, tag = image.name.partition(":")
    layers = [
        ((folder / "digest").read_text(), folder / "layer.tar")
        for folder in (packed(layer, log) for layer in _bottom_up(image.layer))
    ]
    if image.programs or image.files:
        data = _programs_tar(image)
        layers.append((_put(storage, data), data))
    for sha, content in layers:
        if isinstance(content, Path) and not (target := _blob(storage, sha)).exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _place(content, target)
    config = _json(
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "created": "2001-09-09T01:46:40Z",
            "config": dict(image.config),
            "rootfs": {"type": "layers", "diff_ids": [sha for sha, _ in layers]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, _put(storage, config), len(config)),
            "layers": [
                _descriptor(
                    _LAYER,
                    sha,
                    content.stat().st_size if isinstance(content, Path) else len(content),
                )
                for sha, content in layers
            ],
        }
    )
    revision = _put(storage, manifest)
    # https://distribution.github.io/distribution/storage-drivers/ and storage/paths.go there.
    repository = storage / "docker/registry/v2/repositories" / name
    for sha in [sha for sha, _ in layers] + [_sha(config)]:
        _link(repository / "_layers" / sha.replace(":", "/"), sha)
    _link(repository / "_manifests/revisions" / revision.replace(":", "/"), revision)
    _link(repository / "_manifests/tags" / tag / "index" / revision.replace(":", "/"), revision)
    _link(_current(image, storage), revision)  # last: `written` asks for it


def written(image: Image, storage: Path) -> bool:
    """Tell whether a registry's storage has an image, all of it."""
    return (_current(image, storage) / "link").exists()


def _current(image: Image, storage: Path) -> Path:
    name, _, tag = image.name.partition(":")
    repository = storage / "docker/registry/v2/repositories" / name
    return repository / "_manifests/tags" / tag / "current"


def _place(content: Path, target: Path) -> None:
    """Put a layer into the storage; the registry never sees a part of it."""
    try:
        target.hardlink_to(content)
    except OSError:  # EXDEV: the storage is that of a running cluster
        part = target.with_name("part")
        shutil.copyfile(content, part)
        part.rename(target)


def _bottom_up(layer: Layer | None) -> list[Layer]:
    return [*reversed(layer.stack)] if layer else []


def _programs_tar(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for module, program, target in image.programs:
            _add(tar, target, (programs(module) / program).read_bytes(), 0o755)
        for path, content in image.files:
            _add(tar, path, content.encode(), 0o644)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(path.rstrip("/"))
    member.mtime = _TIME
    if path.endswith("/"):
        member.type, member.mode = tarfile.DIRTYPE, 0o777
        tar.addfile(member)
    else:
        member.size, member.mode = len(content), mode
        tar.addfile(member, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(media: str, sha: str, size: int) -> dict[str, object]:
    return {"mediaType": media, "digest": sha, "size": size}


def _blob(storage: Path, sha: str) -> Path:
    kind, _, hexa = sha.partition(":")
    return storage / "docker/registry/v2/blobs" / kind / hexa[:2] / hexa / "data"


def _put(storage: Path, data: bytes) -> str:
    sha = _sha(data)
    target = _blob(storage, sha)
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _whole(target, data)
    return sha


def _link(folder: Path, sha: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _whole(folder / "link", sha.encode())


def _whole(target: Path, data: bytes) -> None:
    """Write a file of which nobody sees a part."""
    part = target.with_name("part")
    part.write_bytes(data)
    part.rename(target)
