"""The directive ``%volume``, which gives replicas folders with data from outside."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from ciao_kernel.magics.directive import Directive, Scope
from ciao_kernel.magics.numeric_types import Memory
from ciao_kernel.magics.shell_words import quote, words
from ciao_kernel.model.volume import Volume, VolumeKind, overlap

_CLAIM = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
"""A DNS-1123 subdomain, as Kubernetes requires for names of claims."""
_SERVER = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?")
_EMPTY = {"tmp": VolumeKind.TMP, "memory": VolumeKind.MEMORY}
_SCHEME = re.compile(r"\A(?:nfs://|host:)")
_TAKEN = ("/ciao", "/ciao-packed", "/dev", "/proc", "/sys")
"""Folders of every pod: the program's own, and those that the container runtime mounts."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """Volumes: ``WHAT:WHERE`` or ``WHAT:WHERE:ro``, separated by spaces."""

    expected: str = (
        "WHAT:WHERE or WHAT:WHERE:ro, where WHAT is CLAIM, CLAIM/FOLDER, nfs://SERVER/PATH, "
        "host:/PATH, tmp, tmp:10Gi or memory:2Gi"
    )

    def parse(self, text: str) -> tuple[Volume, ...]:
        """Read each word; no two volumes may be in the same folder."""
        found: list[Volume] = []
        for word in words(text):
            one = self._read(word)
            check_apart(one, found)
            found.append(one)
        if not found:
            raise ValueError(self.expected)
        return tuple(found)

    def render(self, value: tuple[Volume, ...]) -> str:
        """Write each volume as one word."""
        return " ".join(quote(str(one)) for one in value)

    def _read(self, word: str) -> Volume:
        read_only = word.endswith(":ro")
        what, colon, where = word.removesuffix(":ro").rpartition(":")
        # Of nfs://SERVER/PATH without a WHERE, the colon behind nfs is the last one.
        if not colon or not what or not where or (what == "nfs" and where.startswith("//")):
            raise ValueError(self.expected)
        if "," in where or ("," in what and ":" in _SCHEME.sub("", what)):
            raise ValueError(f"volumes that are separated by spaces: {self.expected}")
        where = _where(where)
        kind, _, size = what.partition(":")
        if kind in _EMPTY:
            if read_only:
                raise ValueError(f"{kind} without :ro, because the folder is empty at the start")
            return Volume(_EMPTY[kind], where, size=self._size(what, size))
        if kind == "host":
            if not size.startswith("/") or size == "/":
                raise ValueError(f"host:/PATH with the path of a folder, not {what}")
            path = "/" + _inside(size[1:])
            return Volume(VolumeKind.HOST, where, path=path, read_only=read_only)
        if what.startswith("nfs://"):
            server, slash, export = what.removeprefix("nfs://").partition("/")
            if not _SERVER.fullmatch(server) or not slash:
                raise ValueError(f"nfs://SERVER/PATH, not {what}")
            path = "/" + _inside(export) if export else "/"
            return Volume(VolumeKind.NFS, where, server, path, read_only=read_only)
        if (found := claim_and_folder(what)) is None:
            raise ValueError(self.expected)
        return Volume(VolumeKind.CLAIM, where, *found, read_only=read_only)

    @staticmethod
    def _size(what: str, size: str) -> str:
        if what.endswith(":") or (not size and what == "memory"):
            raise ValueError(f"a size, such as {what.removesuffix(':')}:2Gi")
        return Memory("a size in Kubernetes' notation, such as 10Gi").parse(size) if size else ""


def claim_and_folder(text: str) -> tuple[str, str] | None:
    """Split ``CLAIM/FOLDER``, whose folder may be missing; None if the text has another form.

    Raises:
        ValueError: The folder is not one inside the claim.
    """
    claim, slash, folder = text.partition("/")
    if not _CLAIM.fullmatch(claim) or (slash and not folder):
        return None
    return claim, _inside(folder) if folder else ""


def check_apart(one: Volume, others: list[Volume]) -> None:
    """Raise ValueError if a volume is in, or above, the folder of another one."""
    if near := next((other for other in others if overlap(one.where, other.where)), None):
        raise ValueError(f"a folder of its own; {near.where} is the folder of {near.what}")


def _inside(path: str) -> str:
    """Return a relative path in its normal form."""
    if ".." in path.split("/") or path.startswith("/") or not path.isprintable():
        raise ValueError(f"a path without .. and with single slashes, not {path}")
    return posixpath.normpath(path)


def _where(path: str) -> str:
    """Return the path of a volume's folder in its normal form."""
    if path.startswith("/"):
        normal = "/" + _inside(path[1:])
        if normal in ("/", "/.") or any(overlap(normal, taken) for taken in _TAKEN):
            raise ValueError(
                f"a folder other than {path}, which every replica has already; a relative path, "
                "such as data, is below the program's folder"
            )
        return normal
    normal = _inside(path)
    if normal == "." or normal.startswith("~") or "\\" in normal:
        raise ValueError("a folder below the program's own, such as data, or an absolute path")
    return normal


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "volume",
            "volumes",
            Volumes(),
            "Data from outside as a folder: a claim of the namespace, an NFS export, a folder of "
            "the node, or an empty folder. On this machine a claim is the folder that the setting "
            "volumes names. Behind a role only its replicas have it: %worker=2;%volume=….",
            "%volume=train-data:input/train:ro",
            Scope.JOB_OR_ROLE,
            repeatable=True,
        ),
    ]
