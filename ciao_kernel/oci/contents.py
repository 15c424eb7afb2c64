"""Python version and packages of an image, read from the names of its files.

No pod is started. Each layer is read once and cached by digest, since it never changes.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from ciao_kernel import disk_cache, private_files
from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.decompression import Decompressor
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.repository import Repository

# Names that identify a package: a folder or a file beside its modules
# (https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
_PACKAGE = re.compile(r"(?P<site>.+)/(?P<name>[^/]+)\.(?:dist|egg)-info(?:/|$)")
_SITE = re.compile(
    r"(?P<prefix>.*)/lib(?:32|64)?/python(?P<version>3(?:\.\d+)?)/(?:site|dist)-packages"
)
_PYTHON = re.compile(r"(?P<folder>.*/bin)/python3\.(?P<minor>\d+)$")
_VERSION = re.compile(r"(?:.*/)?python3\.(\d+)$")
_MUSL = re.compile(r"/(?:usr/)?lib/ld-musl-")
_ENVIRONMENT = "/pyvenv.cfg"
_SYSTEM = re.compile(rb"include-system-site-packages\s*=\s*true", re.IGNORECASE)
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_LARGEST = 64 << 20
"""Bytes of a file in the cache: the names in one layer."""
_MOST = 100_000
"""Names of one layer that matter; images have some hundreds."""
_LINKS = 16
"""Maximum length of a chain of links."""


class Unreadable(RegistryFault):
    """A layer is damaged, or compressed in a way that only nodes can read."""


@dataclass(frozen=True, slots=True)
class Installed:
    """Python of an image, and its packages.

    Args:
        python: Version of Python, such as ``3.13``; "" if none was found.
        packages: Versions of packages, by normalised name.
        musl: The C library is musl, which needs other wheels.
    """

    python: str
    packages: Mapping[str, str] = field(default_factory=dict)
    musl: bool = False


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
        cache: Folder for the results; its owner prunes the subfolder ``layers``.
        emit: Called with a message before a large layer is read.
        python: The interpreter, as the replicas start it: a command or a path.
        on_progress: Called for each received piece; an exception that it raises ends the work.

    Raises:
        Unreadable: The contents of a layer cannot be read.
        RegistryFault: A layer cannot be downloaded.
    """
    names: dict[str, str] = {}
    for layer in image.manifest["layers"]:
        digest = str(layer["digest"])
        cached = cache / "layers" / f"{digest.removeprefix('sha256:')}.json"
        disk_cache.used(cached)
        found = _read(cached)
        if found is None:
            size = int(layer.get("size") or 0)
            if size > 20 << 20:
                emit(
                    f"reading the packages of {repository.reference.name}, once "
                    f"({size / 1e6:,.0f} MB) …"
                )
            found = _names(repository, layer, on_progress)
            _keep(cached, found)
        names = _over(names, found)
    return _of(names, image.env, python)


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
                elif path.endswith(_ENVIRONMENT) and member.isfile():
                    config = tar.extractfile(member)
                    text = config.read(4096) if config else b""
                    found[path] = "system" if _SYSTEM.search(text) else ""
                elif "/bin/python" in path or _WHITEOUT in path or _MUSL.match(path):
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


def _of(names: dict[str, str], env: Mapping[str, str], python: str) -> Installed:
    from packaging.utils import canonicalize_name  # imported late, as tarfile above

    musl = any(map(_MUSL.match, names))
    search = [] if "/" in python else env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    path = _found(names, python, search)
    version = _version(names, path)
    if not version and python in ("python", "python3"):
        # The command may be a script that selects a version, as in pyenv. If there is only one
        # version, it is that one.
        all_of_them = {one for one in names if _PYTHON.match(one)}
        versions = {_version(names, one) for one in all_of_them}
        if len(versions) == 1:
            path, version = min(all_of_them), versions.pop()
    if not version:
        return Installed("", musl=musl)
    prefixes = _prefixes(names, path)
    added = {folder.rstrip("/") for folder in env.get("PYTHONPATH", "").split(":")}
    packages: dict[str, str] = {}
    for one in names:
        if not one.endswith(".info"):
            continue
        site, _, name = one.removesuffix(".info").rpartition("/")
        # Debian's own packages are in python3/, all others in python3.13/.
        match = _SITE.fullmatch(site)
        seen = match and match["prefix"] in prefixes and match["version"] in ("3", version)
        if not seen and site not in added:
            continue
        name, _, version_of_it = re.sub(r"-py3\.\d+$", "", name).rpartition("-")
        known = canonicalize_name(name)
        # Packages on the PYTHONPATH take precedence.
        if name and (site in added or known not in packages):
            packages[known] = version_of_it
    return Installed(version, packages, musl)


def _found(names: dict[str, str], python: str, search: list[str]) -> str:
    """Return the path of a command; "" if it is not found."""
    for path in [f"{folder.rstrip('/')}/{python}" for folder in search] or [python]:
        # If /bin is a link to /usr/bin, the layer lists the files only in /usr/bin.
        for one in (path, f"/usr{path}"):
            if one in names:
                return one
            folder, _, name = one.rpartition("/")
            if name == "python3" and (near := _numbered(names, folder)):
                return near
    return ""


def _numbered(names: dict[str, str], folder: str) -> str:
    """Return the newest ``python3.N`` of a folder; "" if it has none."""
    matches = [m for path in names if (m := _PYTHON.match(path)) and m["folder"] == folder]
    newest = max(matches, key=lambda match: int(match["minor"]), default=None)
    return newest[0] if newest else ""


def _followed(names: dict[str, str], path: str) -> Iterator[str]:
    """Yield a path, and the targets of its chain of links."""
    for _ in range(_LINKS):
        yield path
        target = names.get(path, "")
        if not target:
            return
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if path not in names and f"/usr{path}" in names:
            path = f"/usr{path}"


def _version(names: dict[str, str], path: str) -> str:
    """Return the Python version in the name of a path or of its link targets; "" if none."""
    for one in _followed(names, path):
        if match := _VERSION.match(one):
            return f"3.{match[1]}"
    near = _numbered(names, posixpath.dirname(path)) if path else ""
    match = _VERSION.match(near)
    return f"3.{match[1]}" if match else ""


def _prefixes(names: dict[str, str], path: str) -> set[str]:
    """Return the prefixes of an interpreter's packages; a virtual environment has its own."""
    *_, last = _followed(names, path)
    own, base = (posixpath.dirname(posixpath.dirname(one)).rstrip("/") for one in (path, last))
    config = names.get(f"{own}{_ENVIRONMENT}")
    if config == "":
        return {own}
    found = {base} if config is None else {own, base}
    if base in ("", "/usr"):  # Debian's Python uses both
        found |= {"/usr", "/usr/local"}
    return found
