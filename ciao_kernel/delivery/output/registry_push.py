"""Pushes the files of ``%output`` to a registry, as an artifact of OCI (``by:registry``).

This file runs in pods, with the standard library of Python 3.8. The artifact has a layer for each
file, with its path as the title, as ORAS writes and reads it (``oras pull``), and what is to be
said about the files in its config. https://github.com/opencontainers/image-spec, manifest.md, and
https://github.com/opencontainers/distribution-spec, spec.md.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any
from urllib.parse import quote

PROGRAM = "CIAO_OUTPUT_PROGRAM"
"""Variable of the container with this program: nothing that the user's program can change is run
beside the credentials of a registry."""
REGISTRY = "CIAO_OUTPUT_REGISTRY"
"""Variable of the container: where to push, as JSON."""
ARTIFACT = "application/vnd.ciao.output.v1"
LISTING = "application/vnd.ciao.output.listing.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
"""Media types of the artifact, of its config, of manifests, and of what stands for no layer."""
TITLE = "org.opencontainers.image.title"
POD = "io.ciao.pod"
"""Annotations of a layer with its path, and of the manifest with the uid of the pod."""
TAG = "ciao-"
"""Beginning of the tag; the uid of the pod follows."""
MOST_FILES = 5000
_LARGEST = 4_000_000
"""Bytes of a manifest: registries take 4 MiB."""
_TRIES, _WORDS, _PIECE = 6, 2000, 1 << 18
_AT_ONCE = 4
"""Files that are pushed at the same time."""


class _Changed(Exception):
    """A file cannot be read any more, or is another one."""


def push(marks: str, pause: float, limit: int, words: list[str]) -> str:
    """Push the files that some words name; return why that failed.

    The digest of the artifact becomes the termination message of this container, so that nobody can
    put another one in its place.

    Args:
        marks: Folder of marks.
        pause: Seconds before the first new try.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
    """
    client = importlib.import_module("ciao_registry_client")
    files = importlib.import_module("ciao_replica_files")
    told = json.loads(os.environ[REGISTRY])
    base = os.environ.get(files.COPIED, ".")
    if os.path.islink(base):
        return "the folder with the copies of the files is a link"
    try:
        repository = _Repository(client.Registry(told), told["repository"], pause)
        artifact = _Artifact(repository, files, base)
        digest = artifact.push(marks, limit, words)
        with open(told["message"], "w") as file:
            file.write(digest)
        return ""
    except (client.Fault, OSError) as error:
        return str(error)


class _Repository:
    """The place for the artifact.

    Args:
        registry: Sends requests.
        name: Of the repository.
        pause: Seconds before the first new try.
    """

    def __init__(self, registry: Any, name: str, pause: float) -> None:
        self._registry, self._pause = registry, pause
        self._path = "/v2/" + name + "/"

    def blob(self, digest: str, size: int, pieces: Any, what: str) -> bool:
        """Push a blob unless it is there already; return False if it has another digest now.

        Args:
            digest: Its digest.
            size: Bytes of it.
            pieces: Returns its bytes, as often as it is called.
            what: What it is, for messages.
        """
        refused: list[bool] = []

        def once() -> bool:
            path = self._path + "blobs/"
            code, _ = self._registry.call("HEAD", path + digest, what, (200, 404, 307, 302))
            if code != 404:
                return True
            _, headers = self._registry.call("POST", path + "uploads/", what, (202,))
            place = self._registry.resolve(path, headers.get("Location", ""))
            place += ("&" if "?" in place else "?") + "digest=" + quote(digest, safe="")
            kind = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            code, _ = self._registry.call("PUT", place, what, (201, 204, 400), kind, pieces)
            if code == 400 and not refused:  # or it has lost the upload
                refused.append(True)
                raise self._registry.fault("an upload was refused", True)
            return bool(code != 400)

        return bool(self._tried(once))

    def manifest(self, tag: str, raw: bytes) -> None:
        """Push the manifest, which makes the artifact."""
        headers = {"Content-Type": MANIFEST, "Content-Length": str(len(raw))}
        path = self._path + "manifests/" + tag
        self._tried(
            lambda: self._registry.call(
                "PUT", path, "the list of files", (201,), headers, lambda: [raw]
            )
        )

    def refused(self, what: str) -> Exception:
        """Return the fault for something that the registry does not take."""
        fault: Exception = self._registry.fault("the registry refused " + what + ": HTTP 400")
        return fault

    def _tried(self, work: Any) -> Any:
        for number in range(1, _TRIES):
            try:
                return work()
            except self._registry.fault as fault:
                if not fault.passing:
                    raise
            time.sleep(self._pause * number)
        return work()


class _Artifact:
    """The artifact with the files of this pod.

    Args:
        repository: Its place.
        files: The module that finds files.
        base: The folder with the files.
    """

    def __init__(self, repository: _Repository, files: Any, base: str) -> None:
        self._repository, self._files, self._base = repository, files, base
        self._layers: list[dict[str, Any]] = []
        self._runs: list[str] = []
        self._over = False

    def push(self, marks: str, limit: int, words: list[str]) -> str:
        """Push all files, and then the manifest; return its digest."""
        found, total = self._files.survey(self._base, words, limit, marks)
        faults = dict(found.faults)
        many = len(found.sizes) > MOST_FILES or self._names(found.sizes) > _LARGEST
        paths = [] if many or total > limit else list(found.sizes)
        with futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            for path, (layer, fault) in zip(paths, pool.map(self._layer, paths)):  # noqa: B905
                if layer:
                    self._layers.append(layer)
                else:
                    faults[path] = fault
        told = {
            "files": len(found.sizes),
            "bytes": total,
            "limit": limit,
            "missing": found.missing[:_WORDS],
            "left_out": found.left_out[:_WORDS],
            "faults": dict(list(faults.items())[:_WORDS]),
            "too_many": many,
            "runs": self._runs,
        }
        pod = os.environ[self._files.POD_UID]
        body = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": ARTIFACT,
            "config": self._small(LISTING, json.dumps(told).encode()),
            "layers": self._layers or [self._small(EMPTY, b"{}")],
            "annotations": {POD: pod},
        }
        raw = json.dumps(body).encode()
        self._repository.manifest(TAG + pod, raw)
        return _digest(raw)

    def _names(self, paths: Any) -> int:
        """Return about how many bytes the manifest has."""
        return sum(len(json.dumps(path)) + 250 for path in paths)

    def _small(self, kind: str, raw: bytes) -> dict[str, Any]:
        what = "what is said about the files"
        if not self._repository.blob(_digest(raw), len(raw), lambda: [raw], what):
            raise self._repository.refused(what)
        return {"mediaType": kind, "digest": _digest(raw), "size": len(raw)}

    def _layer(self, path: str) -> tuple[dict[str, Any] | None, str]:
        """Push a file, and return its layer, or why there is none.

        Its digest comes first: a registry that has it already gets nothing.
        """
        if self._over:
            return None, ""
        try:
            return self._pushed(path), ""
        except _Changed as error:
            return None, str(error)
        except BaseException:
            self._over = True  # so that the others do not go on for long
            raise

    def _pushed(self, path: str) -> dict[str, Any]:
        try:
            file = self._files.open_inside(self._base, path)
        except OSError as error:
            raise _Changed(self._files.reason(error)) from None
        with file:
            return self._pushed_open(file.fileno(), path)

    def _pushed_open(self, file: int, path: str) -> dict[str, Any]:
        """Push an open file: its path may lead elsewhere by now."""
        about, total = os.fstat(file), hashlib.sha256()
        for data in _pieces(file, about.st_size):
            total.update(data)
        digest = "sha256:" + total.hexdigest()
        if not self._repository.blob(
            digest, about.st_size, lambda: _pieces(file, about.st_size), ascii(path)[1:-1]
        ):
            raise _Changed("it was written while it was sent")
        if about.st_mode & 0o100:
            self._runs.append(path)
        layer = {"mediaType": "application/octet-stream", "digest": digest, "size": about.st_size}
        return {**layer, "annotations": {TITLE: path}}


def _pieces(file: int, size: int) -> Iterator[bytes]:
    """Yield an open file; exactly as many bytes as it had when it was opened."""
    offset = 0
    while offset < size:
        try:
            data = os.pread(file, min(_PIECE, size - offset), offset)
        except OSError as error:
            # It must not look like a fault of the connection that the file is sent on.
            raise _Changed(error.strerror or type(error).__name__) from None
        if not data:
            raise _Changed("it has become shorter while it was fetched")
        offset += len(data)
        yield data


def _digest(raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()
