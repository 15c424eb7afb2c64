"""What a build is made from: files of the user's folder, packed to the same bytes each time."""

from __future__ import annotations

import base64
import errno
import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from ciao_kernel.builders.dockerfile import CARRIED
from ciao_kernel.builders.ignore import Ignored
from ciao_kernel.errors import EnvironmentFault, SourceError
from ciao_kernel.model import Manifest
from ciao_kernel.oci.layer import File, Layer, pack

LIMIT = 900 << 10
"""Packed bytes that go in a ConfigMap, which holds a MiB in all; more go through the registry."""
KEY = "context.tar.gz"
_MOST = 4 << 30
_IN_MEMORY = 16 << 20
_SECRET = (
    ".netrc", "_netrc", ".env", ".env.*", ".pypirc", ".git-credentials", ".dockerconfigjson",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.pem", "*.key", "*.p12", "kubeconfig",
)  # fmt: skip
"""Names of files that hold passwords and keys as a rule."""
_CACHES = {"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache"}


def read(folder: Path, name: str, what: str) -> str:
    """Read a text file beside the notebook.

    Args:
        folder: Of the notebook.
        name: Of the file, from there on.
        what: The directive that names it.

    Raises:
        SourceError: It is not there, or no text.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("~"):
        raise SourceError(
            f"{what} names {name}, which is outside the notebook's folder, {folder}.",
            "Copy it there.",
        )
    try:
        with (folder / name).open("rb") as opened:
            if not (folder / name).is_file():
                raise OSError(errno.EINVAL, "it is no file")
            return opened.read(1 << 20).decode("utf-8-sig")
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is no text"
    raise SourceError(f"{name} cannot be read: {why}.", f"{what} names a file beside the notebook.")


def ignores(folder: Path, name: str) -> str:
    """The text of a file such as ``.dockerignore``; "" where there is none."""
    return read(folder, name, name) if (folder / name).is_file() else ""


def gather(folder: Path, wanted: Iterable[tuple[str, str]], ignored: Ignored) -> tuple[File, ...]:
    """Find the files that a build takes from the user's folder.

    Args:
        folder: Of the notebook. Nothing outside of it is taken.
        wanted: Patterns, each with the place that names it, for messages.
        ignored: What stays at home.

    Raises:
        SourceError: A pattern matches nothing, or something that no image should get.
    """
    found: dict[str, File] = {}
    for pattern, place in wanted:
        relative = PurePosixPath(pattern.lstrip("/") or ".")
        if ".." in relative.parts:
            raise SourceError(
                f"{place}: {pattern} is outside the notebook's folder, {folder}.", "Copy it there."
            )
        matches = [folder / relative]
        if not os.path.lexists(matches[0]):
            matches = sorted(folder.glob(str(relative))) if set("*?[") & set(pattern) else []
        if not matches:
            raise SourceError(
                f"{place}: there is no {pattern} in {folder}.",
                "Paths are relative to the folder of the notebook.",
            )
        for match in matches:
            for path in _files(match):
                name = path.relative_to(folder).as_posix()
                if not ignored(name):
                    named = path == folder / relative
                    found[name] = _file(name, path, place, named)
    total = sum(map(_size, found.values()))
    if total > _MOST:
        raise SourceError(
            f"the build takes {total / 1e9:,.1f} GB of files, and {_MOST / 1e9:,.1f} are the most.",
            "A file .dockerignore says what stays at home.",
        )
    return tuple(found[name] for name in sorted(found))


def _files(top: Path) -> Iterator[Path]:
    """A file, or all below a folder; links to folders are not followed: they may be loops."""
    if not top.is_dir():
        yield top
        return
    for parent, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _CACHES)
        for name in sorted(names):
            yield Path(parent, name)


def _file(name: str, path: Path, place: str, named: bool) -> File:
    why = hint = ""
    secret = any(fnmatch.fnmatch(path.name, pattern) for pattern in _SECRET)
    try:
        if secret and not named:
            why = "is a file that holds passwords or keys as a rule"
            hint = "Leave it out by a line in .dockerignore, or name it alone if it is meant."
        elif not path.is_file():
            why = "is neither a file nor a folder"
            hint = "Leave it out by a line in .dockerignore."
        else:
            with path.open("rb"):
                runs = bool(path.stat().st_mode & 0o100)
            return File(name, path, runs)
    except OSError as error:
        why, hint = f"cannot be read: {error.strerror}", "Fix its permissions, or leave it out."
    raise SourceError(f"{place}: {name} {why}.", hint)


def _size(file: File) -> int:
    known = file.content
    return len(known) if isinstance(known, bytes) else known.stat().st_size


def packed(files: Iterable[File], folder: Path, heard: Callable[[], None]) -> Layer:
    """Pack files, large ones to the disk.

    Raises:
        SourceError: One cannot be read.
        EnvironmentFault: The disk is full.
    """
    chosen = tuple(files)
    try:
        size = sum(map(_size, chosen))
        return pack(chosen, folder / KEY if size > _IN_MEMORY else None, heard=heard)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise EnvironmentFault(
                f"no space is left in {folder.parent} to pack the files of the build.",
                "Free some, or take less along.",
            ) from None
        raise SourceError(
            f"{error.filename} cannot be read: {error.strerror}.", "Fix its permissions."
        ) from None


def carried(files: Iterable[File]) -> tuple[File, ...]:
    """The files as an image carries them that a Dockerfile is sent through."""
    return tuple(File(f"{CARRIED}/{one.path}", one.content, one.executable) for one in files)


def config_map(name: str, layer: Layer, authority: bytes | None) -> Manifest:
    """The ConfigMap that brings a small context, and the certificate of a private registry."""
    data = {KEY: layer.content if isinstance(layer.content, bytes) else layer.content.read_bytes()}
    if authority is not None:
        data["ca.crt"] = authority
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "immutable": True,
        "binaryData": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }
