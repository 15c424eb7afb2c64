"""What Python an image has, and which packages: read from the names of its files.

No pod is started for it. Layers are read once and kept by digest: they never change.
"""

from __future__ import annotations

import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.image import Image
from ciao_kernel.oci.repository import Repository

# Names that tell of a package: that of a folder or a file beside its modules
# (https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
_PACKAGE = re.compile(
    r"(?P<site>.*/(?:site|dist)-packages)/(?P<name>[^/]+)\.(?:dist|egg)-info(?:/|$)"
)
_PYTHON = re.compile(r"(?P<folder>.*/bin)/python3\.(?P<minor>\d+)$")
_LINK = re.compile(r"(?:.*/)?python3\.(\d+)$")
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Installed:
    """The Python that ``python3`` is, and what it can import.

    Args:
        python: Its version, ``3.13``; "" where none was found.
        packages: Versions by normalised name.
    """

    python: str
    packages: Mapping[str, str] = field(default_factory=dict)


def installed(
    repository: Repository, image: Image, cache: Path, emit: Callable[[str], None]
) -> Installed:
    """Read what an image has installed.

    Args:
        repository: Where the image is.
        image: Which one.
        cache: Folder that keeps what was read.
        emit: Is told before something is read that takes long.

    Raises:
        RegistryFault: A layer cannot be read.
    """
    names: dict[str, str] = {}
    for layer in image.manifest["layers"]:
        digest = str(layer["digest"])
        kept = cache / "layers" / f"{digest.removeprefix('sha256:')}.json"
        found = _read(kept)
        if found is None:
            size = int(layer.get("size") or 0)
            if size > 20 * _PIECE:
                emit(
                    f"reading once what {repository.reference.name} has installed "
                    f"({size / 1e6:,.0f} MB) …"
                )
            found = _names(repository, layer)
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_suffix(".part")
            partial.write_text(json.dumps(found))
            partial.replace(kept)
        names = _over(names, found)
    return _of(names, image.env.get("PATH", "/usr/local/bin:/usr/bin:/bin"))


def normalised(name: str) -> str:
    """A package's name in the form in which names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _read(kept: Path) -> dict[str, str] | None:
    with suppress(OSError, ValueError):
        found = json.loads(kept.read_text())
        if isinstance(found, dict):
            return found
    return None


def _names(repository: Repository, layer: dict[str, Any]) -> dict[str, str]:
    """The paths in a layer that matter, each with what it is a link to, or ""."""
    found: dict[str, str] = {}
    digest, size = str(layer["digest"]), int(layer["size"])
    with closing(repository.open_blob(digest, size, str(repository.reference))) as blob:
        try:
            stream = cast(IO[bytes], _Unpacked(iter(blob)))
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE) as tar:
                for member in tar:
                    path = "/" + member.name.removeprefix("./").strip("/")
                    if match := _PACKAGE.match(path):
                        found[f"{match['site']}/{match['name']}.info"] = ""
                    elif "/bin/python" in path or _WHITEOUT in path:
                        found[path] = member.linkname if member.issym() or member.islnk() else ""
        except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
            raise RegistryFault(
                f"a layer of {repository.reference.name} cannot be read: {error}.",
                "Let it be built in the cluster: %builder=kaniko.",
            ) from None
    return found


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


def _of(names: dict[str, str], search: str) -> Installed:
    python = _python(names, search.split(":"))
    packages: dict[str, str] = {}
    for path in names:
        if not path.endswith(".info"):
            continue
        site, _, name = path.removesuffix(".info").rpartition("/")
        # Debian's own packages stand in python3/, the others' in python3.13/.
        version = re.search(r"/python(3(?:\.\d+)?)/", site + "/")
        if version and version[1] not in ("3", python):
            continue
        name, _, version_of_it = re.sub(r"-py3\.\d+$", "", name).rpartition("-")
        if name:
            packages[normalised(name)] = version_of_it
    return Installed(python, packages)


def _python(names: dict[str, str], folders: list[str]) -> str:
    """The version of the first ``python3`` on the PATH."""
    for folder in folders:
        target = names.get(f"{folder}/python3")
        if target and (match := _LINK.match(target)):
            return f"3.{match[1]}"
        minors = [
            int(match["minor"])
            for path in names
            if (match := _PYTHON.match(path)) and match["folder"] == folder
        ]
        if minors:
            return f"3.{max(minors)}"
    return ""


class _Unpacked:
    """A layer's tar, whatever it is packed with; a piece of it at a time, however small it packs.

    Raises:
        ValueError: It is packed in a way that cannot be read here.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._packed = next(pieces, b"")
        self._rest = b""
        if self._packed[:4] == b"\x28\xb5\x2f\xfd":
            raise ValueError("it is packed with zstd")
        self._zip = zlib.decompressobj(31) if self._packed[:2] == b"\x1f\x8b" else None

    def _more(self) -> bytes:
        """The next bytes of the tar; none at its end."""
        while True:
            if self._zip is None:
                found, self._packed = self._packed, b""
            else:
                found = self._zip.decompress(self._packed, _PIECE)
                self._packed = self._zip.unconsumed_tail
                if self._zip.eof:  # of several members, one behind the other
                    self._packed = self._zip.unused_data
                    self._zip = zlib.decompressobj(31)
            if found:
                return found
            self._packed = self._packed or next(self._pieces, b"")
            if not self._packed:
                return b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (data := self._more()):
            self._rest += data
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
