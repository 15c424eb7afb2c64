"""Names of the files of an image that tell its Python, its C library and its packages.

No pod is started. Each layer is read once and cached by digest, since it never changes.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from ciao_kernel import disk_cache, private_files
from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.decompression import Decompressor
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.interpreter import CONFIG, GLIBC, MUSL, Installed, choose
from ciao_kernel.oci.repository import Repository

if TYPE_CHECKING:
    import tarfile

CACHE = "paths"
"""Folder of the results in the cache. A change of the kept names needs another one."""
FORMER_CACHES = ("layers", "names")
"""Folders of results with other names, which nothing reads any more."""
# Names that identify a package: a folder or a file beside its modules
# (https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
_PACKAGE = re.compile(r"(?P<site>.+)/(?P<name>[^/]+)\.(?:dist|egg)-info(?:/|$)")
_INTERPRETER = re.compile(r".*/(?:[\w.]+-)?python(?:3(?:\.\d+)?)?")
"""A command, a shim of pyenv, or a link of update-alternatives, in any folder."""
_SELECTED = re.compile(r".*/\.?pyenv/version")
"""pyenv's file with the versions that its shims start."""
_SYSTEM = re.compile(rb"include-system-site-packages\s*=\s*true", re.IGNORECASE)
_GLIBC_RELEASE = re.compile(rb"GNU C Library [^\n]{0,200}release version (2\.\d{1,3})")
"""What glibc says when it is run as a program."""
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_SAID_FROM = 20 << 20
"""Bytes of layers from which it is said that they are read."""
_LARGEST = 64 << 20
"""Bytes of a file in the cache: the names in one layer."""
_LONGEST = 4096
"""Bytes that are read of a file whose content matters."""
_LARGEST_LIBRARY = 16 << 20
"""Bytes that are read of the C library; it has 2 MB."""
_MOST = 100_000
"""Names of one layer that matter; images have some hundreds."""


class Unreadable(RegistryFault):
    """A layer is damaged, or compressed in a way that only nodes can read."""


def installed(
    repository: Repository,
    image: Image,
    cache: Path,
    emit: Callable[[str], None],
    python: str = "python3",
    on_progress: Callable[[], None] = lambda: None,
) -> Installed:
    """Read the Python version and the installed packages of an image.

    Args:
        repository: Repository of the image.
        image: The image.
        cache: Folder for the results; its owner prunes the subfolder :data:`CACHE`.
        emit: Called with a message before much is read.
        python: The interpreter, as the replicas start it: a command or a path.
        on_progress: Called for each received piece; an exception that it raises ends the work.

    Raises:
        Unreadable: The contents of a layer cannot be read.
        RegistryFault: A layer cannot be downloaded.
    """
    known: dict[Path, dict[str, str]] = {}
    missing: dict[Path, dict[str, Any]] = {}
    layers = [(_place(cache, layer), layer) for layer in image.manifest["layers"]]
    for cached, layer in layers:
        disk_cache.used(cached)
        found = _read(cached)
        if found is None:
            missing[cached] = layer
        else:
            known[cached] = found
    size = sum(int(layer.get("size") or 0) for layer in missing.values())
    if size > _SAID_FROM:
        name = repository.reference.name
        emit(f"reading the packages of {name}, once ({size / 1e6:,.0f} MB) …")
    for cached, layer in missing.items():
        known[cached] = _names(repository, layer, on_progress)
        _keep(cached, known[cached])
    names: dict[str, str] = {}
    for cached, _ in layers:
        names = _over(names, known[cached])
    return choose(names, image.env, python, image.user)


def _place(cache: Path, layer: dict[str, Any]) -> Path:
    """Return the file with what is known of a layer."""
    return cache / CACHE / f"{str(layer['digest']).removeprefix('sha256:')}.json"


def _read(cached: Path) -> dict[str, str] | None:
    with suppress(OSError, ValueError):
        found = json.loads(private_files.read(cached, _LARGEST))
        if isinstance(found, dict):
            return found
    return None


def _keep(cached: Path, found: dict[str, str]) -> None:
    """Cache the contents of a layer; if the file cannot be written, they are read again later."""
    with suppress(OSError, private_files.Untrusted):
        private_files.make_folders(cached.parent, cached.parent)
        with tempfile.NamedTemporaryFile("w", dir=cached.parent, delete=False) as file:
            try:
                json.dump(found, file)
                file.close()
                Path(file.name).replace(cached)
            except OSError:
                Path(file.name).unlink(missing_ok=True)


def _names(
    repository: Repository, layer: dict[str, Any], on_progress: Callable[[], None]
) -> dict[str, str]:
    """Return the relevant paths in a layer, each with the target of its link, or ""."""
    import tarfile  # imported late: a kernel imports the builders when it starts

    from ciao_kernel.oci import foreign_tar

    found: dict[str, str] = {}
    taken = 0
    digest, size = str(layer["digest"]), int(layer["size"])
    with closing(repository.open_blob(digest, size, str(repository.reference))) as blob:
        blob.on_progress = lambda done: on_progress()
        pieces, came = iter(blob), hashlib.sha256()
        try:
            stream = cast(IO[bytes], Decompressor(_hashed(pieces, came)))
            for member, tar in foreign_tar.members(stream):
                path = "/" + member.name.removeprefix("./").strip("/")
                if len(found) > _MOST or taken > _LARGEST:
                    raise tarfile.ReadError("too many of its names matter")
                before = len(found)
                if match := _PACKAGE.match(path):
                    found[f"{match['site']}/{match['name']}.info"] = ""
                elif path.endswith(CONFIG) and member.isfile():
                    found[path] = "system" if _SYSTEM.search(_start(tar, member)) else ""
                elif _SELECTED.fullmatch(path) and member.isfile():
                    found[path] = _words(_start(tar, member))
                elif GLIBC.fullmatch(path) and member.isfile():
                    said = _GLIBC_RELEASE.search(_start(tar, member, _LARGEST_LIBRARY))
                    found[path] = said[1].decode() if said else ""
                elif _matters(path, member):
                    # The target of a hard link starts at the root.
                    root = "/" if member.islnk() else ""
                    target = member.linkname.removeprefix("./")
                    linked = member.issym() or member.islnk()
                    found[path] = root + target if linked else ""
                if len(found) > before:
                    taken += len(path) + len(member.linkname)
        except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
            raise Unreadable(
                f"a layer of {repository.reference.name} cannot be read: {error}.",
                "Build the image in the cluster: %builder=kaniko.",
            ) from None
        for piece in pieces:  # data after the end of the tar
            came.update(piece)
    if digest != f"sha256:{came.hexdigest()}":
        # The result is cached forever under this digest, so the digest must be right.
        raise RegistryFault(
            f"a layer of {repository.reference.name} does not match its digest: {digest}.",
            "The image, or its transfer, is damaged: push the image again.",
        )
    return found


def _matters(path: str, member: tarfile.TarInfo) -> bool:
    """Return whether a path may lead to an interpreter, or tells of others."""
    if "/bin/python" in path or _WHITEOUT in path or MUSL.match(path) or GLIBC.fullmatch(path):
        return True
    return bool(_INTERPRETER.fullmatch(path)) and not member.isdir()


def _start(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int = _LONGEST) -> bytes:
    """Return the start of a file."""
    content = tar.extractfile(member)
    return content.read(most) if content else b""


def _words(text: bytes) -> str:
    """Return the words of a file of pyenv, separated by colons."""
    lines = text.decode(errors="replace").splitlines()
    return ":".join(word for line in lines if line[:1] != "#" for word in line.split())


def _hashed(pieces: Iterator[bytes], came: Any) -> Iterator[bytes]:
    for piece in pieces:
        came.update(piece)
        yield piece


def _over(below: dict[str, str], above: dict[str, str]) -> dict[str, str]:
    """Return the visible paths after one more layer; its whiteouts hide paths below."""
    seen = dict(below)
    for path in above:
        folder, _, name = path.rpartition("/")
        if name == _OPAQUE:
            seen = {one: to for one, to in seen.items() if not one.startswith(folder + "/")}
        elif name.startswith(_WHITEOUT):
            hidden = f"{folder}/{name.removeprefix(_WHITEOUT)}"
            hidden = re.sub(r"\.(dist|egg)-info$", ".info", hidden)
            seen = {
                one: to
                for one, to in seen.items()
                if one != hidden and not one.startswith(hidden + "/")
            }
    return seen | {path: to for path, to in above.items() if _WHITEOUT not in path}
