"""What Python an image has, and which packages: read from the names of its files.

No pod is started for it. Layers are read once and kept by digest: they never change.
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

from ciao_kernel import disk_cache
from ciao_kernel.builders.oci.image import Image
from ciao_kernel.builders.oci.repository import Repository
from ciao_kernel.builders.oci.unpacked import Unpacked
from ciao_kernel.errors import RegistryFault

# Names that tell of a package: that of a folder or a file beside its modules
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
_PIECE = 1 << 20
_LINKS = 16
"""Links behind one another that are followed."""


class Unreadable(RegistryFault):
    """A layer is packed in a way that only nodes know, or is damaged."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The Python that a name stands for, and what it can import.

    Args:
        python: Its version, ``3.13``; "" where none was found.
        packages: Versions by normalised name.
        musl: The C library is musl, for which there are other wheels.
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
    heard: Callable[[], None] = lambda: None,
) -> Installed:
    """Read what an image has installed.

    Args:
        repository: Where the image is.
        image: Which one.
        cache: Folder that keeps what was read; whoever owns it prunes its ``layers``.
        emit: Is told before something is read that takes long.
        python: The interpreter, as the replicas start it: a command or a path.
        heard: Is called for each piece that came; what it raises ends the work.

    Raises:
        Unreadable: A layer cannot be looked into.
        RegistryFault: A layer cannot be had.
    """
    names: dict[str, str] = {}
    for layer in image.manifest["layers"]:
        digest = str(layer["digest"])
        kept = cache / "layers" / f"{digest.removeprefix('sha256:')}.json"
        disk_cache.used(kept)
        found = _read(kept)
        if found is None:
            size = int(layer.get("size") or 0)
            if size > 20 * _PIECE:
                emit(
                    f"reading once what {repository.reference.name} has installed "
                    f"({size / 1e6:,.0f} MB) …"
                )
            found = _names(repository, layer, heard)
            _keep(kept, found)
        names = _over(names, found)
    return _of(names, image.env, python)


def normalised(name: str) -> str:
    """A package's name in the form in which names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(kept: Path) -> dict[str, str] | None:
    with suppress(OSError, ValueError):
        found = json.loads(kept.read_text())
        if isinstance(found, dict):
            return found
    return None


def _keep(kept: Path, found: dict[str, str]) -> None:
    """Write what was read; where that cannot be, it is read again next time."""
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            try:
                json.dump(found, file)
                file.close()
                Path(file.name).replace(kept)
            except OSError:
                Path(file.name).unlink(missing_ok=True)


def _names(
    repository: Repository, layer: dict[str, Any], heard: Callable[[], None]
) -> dict[str, str]:
    """The paths in a layer that matter, each with what it is a link to, or ""."""
    import tarfile  # not before it is needed: a kernel reads the builders when it starts

    found: dict[str, str] = {}
    digest, size = str(layer["digest"]), int(layer["size"])
    with closing(repository.open_blob(digest, size, str(repository.reference))) as blob:
        blob.heard = lambda done: heard()
        pieces, came = iter(blob), hashlib.sha256()
        try:
            stream = cast(IO[bytes], Unpacked(_hashed(pieces, came)))
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE) as tar:
                for member in tar:
                    path = "/" + member.name.removeprefix("./").strip("/")
                    if match := _PACKAGE.match(path):
                        found[f"{match['site']}/{match['name']}.info"] = ""
                    elif path.endswith(_ENVIRONMENT) and member.isfile():
                        config = tar.extractfile(member)
                        text = config.read(4096) if config else b""
                        found[path] = "system" if _SYSTEM.search(text) else ""
                    elif "/bin/python" in path or _WHITEOUT in path or _MUSL.match(path):
                        # A hard link names its target from the root on.
                        root = "/" if member.islnk() else ""
                        target = member.linkname.removeprefix("./")
                        linked = member.issym() or member.islnk()
                        found[path] = root + target if linked else ""
        except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
            raise Unreadable(
                f"a layer of {repository.reference.name} cannot be read: {error}.",
                "Let it be built in the cluster: %builder=kaniko.",
            ) from None
        for piece in pieces:  # what lies behind the end of the tar
            came.update(piece)
    if digest != f"sha256:{came.hexdigest()}":
        # What is found is kept for ever, under a digest that has to be its own.
        raise RegistryFault(
            f"a layer of {repository.reference.name} is not what its digest says: {digest}.",
            "The image is damaged, or something on the way is: push it again.",
        )
    return found


def _hashed(pieces: Iterator[bytes], came: Any) -> Iterator[bytes]:
    for piece in pieces:
        came.update(piece)
        yield piece


def _over(below: dict[str, str], above: dict[str, str]) -> dict[str, str]:
    """What is seen where one layer lies over others; whiteouts hide what is below."""
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
    musl = any(map(_MUSL.match, names))
    search = [] if "/" in python else env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    path = _found(names, python, search)
    version = _version(names, path)
    if not version and python in ("python", "python3"):
        # A script may choose one, as pyenv's does: where there is one alone it will be that.
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
        # Debian's own packages stand in python3/, the others' in python3.13/.
        match = _SITE.fullmatch(site)
        seen = match and match["prefix"] in prefixes and match["version"] in ("3", version)
        if not seen and site not in added:
            continue
        name, _, version_of_it = re.sub(r"-py3\.\d+$", "", name).rpartition("-")
        # The PYTHONPATH comes first.
        if name and (site in added or normalised(name) not in packages):
            packages[normalised(name)] = version_of_it
    return Installed(version, packages, musl)


def _found(names: dict[str, str], python: str, search: list[str]) -> str:
    """The path that a command means; "" if there is none."""
    for path in [f"{folder.rstrip('/')}/{python}" for folder in search] or [python]:
        # Where /bin is a link to /usr/bin, a layer knows the files by their own folder alone.
        for one in (path, f"/usr{path}"):
            if one in names:
                return one
            folder, _, name = one.rpartition("/")
            if name == "python3" and (near := _numbered(names, folder)):
                return near
    return ""


def _numbered(names: dict[str, str], folder: str) -> str:
    """The newest ``python3.N`` of a folder."""
    matches = [m for path in names if (m := _PYTHON.match(path)) and m["folder"] == folder]
    newest = max(matches, key=lambda match: int(match["minor"]), default=None)
    return newest[0] if newest else ""


def _followed(names: dict[str, str], path: str) -> Iterator[str]:
    """A path, and what it is a link to, to the end."""
    for _ in range(_LINKS):
        yield path
        target = names.get(path, "")
        if not target:
            return
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if path not in names and f"/usr{path}" in names:
            path = f"/usr{path}"


def _version(names: dict[str, str], path: str) -> str:
    """The version that a path's name tells, or that of what it is a link to."""
    for one in _followed(names, path):
        if match := _VERSION.match(one):
            return f"3.{match[1]}"
    near = _numbered(names, posixpath.dirname(path)) if path else ""
    match = _VERSION.match(near)
    return f"3.{match[1]}" if match else ""


def _prefixes(names: dict[str, str], path: str) -> set[str]:
    """The folders whose ``lib`` an interpreter looks into: a virtual environment's is its own."""
    *_, last = _followed(names, path)
    own, base = (posixpath.dirname(posixpath.dirname(one)).rstrip("/") for one in (path, last))
    config = names.get(f"{own}{_ENVIRONMENT}")
    if config == "":
        return {own}
    found = {base} if config is None else {own, base}
    if base in ("", "/usr"):  # Debian's looks there as well
        found |= {"/usr", "/usr/local"}
    return found
