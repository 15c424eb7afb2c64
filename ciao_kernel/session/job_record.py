"""Record of a job's source and header, in its folder on this machine, for `ciao rerun`.

The record has the bytes of the source, as the replicas received them, and the header with all
values. So it is for this user alone, and is removed with the job's folder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ciao_kernel import log, private_files
from ciao_kernel.delivery.input.git_commit import commit_of
from ciao_kernel.delivery.input.held_file import open_checked
from ciao_kernel.errors import SourceError, UsageError
from ciao_kernel.magics import render
from ciao_kernel.magics.directives import warm
from ciao_kernel.magics.table import Table
from ciao_kernel.model import Job, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.visible_text import counted

_log = logging.getLogger(__name__)

_FILE = ".ciao/made_of.json"
"""The record in a job's folder; beside the values of ``%output``."""
_MOST = 16 << 20
"""Bytes of a source that is recorded; a larger one, which has data files, is not copied."""
_LARGEST = 64 << 20
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """Source and header of one job."""

    header: str
    """The directives with all their values: variables may be secrets."""
    shown: str
    """The header as lists show it."""
    module: str
    imports: tuple[str, ...]
    files: tuple[tuple[str, str, bytes, bool], ...] = field(repr=False)
    """Kind, path, content and the right to run it, of each file of the source."""
    facts: tuple[tuple[str, str], ...]
    """What `ciao describe` shows, besides the header."""


def of(plan: Plan, table: Table) -> Record:
    """Return the record of a plan; without files if they are too many bytes.

    Raises:
        SourceError: A file of the source cannot be read.
    """
    source = plan.source
    size, count = sum(one.size for one in source.all()), len(source.all())
    files: tuple[tuple[str, str, bytes, bool], ...] = ()
    words = f"{counted(count, 'file')}, {size:,} bytes"
    if size <= _MOST:
        kinds = (
            ("entry", (source.entry,)),
            ("module", source.modules),
            ("file", source.files),
            ("own", source.own),
        )
        files = tuple((kind, one.path, *_content(one)) for kind, many in kinds for one in many)
        total = hashlib.sha256()
        for kind, path, data, runs in files:
            total.update(f"{kind}\0{path}\0{len(data)}\0{runs}\0".encode() + data)
        words = f"sha256:{total.hexdigest()[:16]} ({words})"
    facts = {"source": words, "git commit": commit_of(plan.folder)}
    return Record(
        render.render(plan.spec, table),
        plan.header,
        source.module,
        tuple(sorted(source.imports)),
        files,
        tuple((name, text) for name, text in facts.items() if text),
    )


def keep(record: Record, job: Job) -> None:
    """Write the record of a job; a fault leaves a job that cannot be started again this way."""
    if not Path(job.files).is_absolute():  # a third party's place
        return
    target = Path(job.files) / _FILE
    if not record.files:
        with log.ignored(_log, "removing the record of an earlier run", OSError):
            target.unlink(missing_ok=True)
        return
    told = {
        "version": _VERSION,
        "header": record.header,
        "shown": record.shown,
        "module": record.module,
        "imports": record.imports,
        "facts": dict(record.facts),
        "files": [
            [kind, path, base64.b64encode(data).decode(), runs]
            for kind, path, data, runs in record.files
        ],
    }
    with log.ignored(_log, "the record of a job", OSError, private_files.Untrusted):
        private_files.make_folders(target.parent, Path(job.files))
        part = target.with_suffix(f".{os.urandom(6).hex()}.part")
        with private_files.create(part) as file:
            file.write(json.dumps(told).encode())
        part.replace(target)


def read(job: Job) -> Record:
    """Return the record of a job.

    Raises:
        UsageError: There is none on this machine.
    """
    try:
        told = json.loads(private_files.read(Path(job.files) / _FILE, _LARGEST))
        if told["version"] == _VERSION:
            return _record(told)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the record of {job.name} cannot be read: {error}.", "Run its cell or file again."
        ) from None
    raise UsageError(
        f"this machine has no record of what {job.name} was made of.",
        "It was started on another machine, by another version of ciao, or with more than "
        f"{_MOST >> 20} MiB of files. Run its cell or file again.",
    )


def of_newest_run(job: Job) -> Job:
    """Return a warm job with the header and the facts of its newest run, which a rerun starts.

    Any other job has one run, and is returned as it is; so is one without a record here.
    """
    if not warm.is_warm(job.header):
        return job
    try:
        record = read(job)
    except UsageError:
        return job
    return replace(job, header=record.shown, made_of=record.facts)


def source(record: Record, folder: Path) -> Source:
    """Return the recorded source.

    Args:
        record: The record.
        folder: An empty folder, for programs: the right to run them comes from a file.
    """

    def made(number: int, path: str, data: bytes, runs: bool) -> SourceFile:
        if not runs:
            return SourceFile(path, data, size=len(data))
        origin = folder.resolve() / str(number)
        with private_files.create(origin, executable=True) as file:
            file.write(data)
        return SourceFile(path, None, origin, len(data))

    found: dict[str, list[SourceFile]] = {"entry": [], "module": [], "file": [], "own": []}
    for number, (kind, path, data, runs) in enumerate(record.files):
        found[kind].append(made(number, path, data, runs))
    (entry,) = found["entry"]
    return Source(
        entry,
        tuple(found["module"]),
        tuple(found["file"]),
        frozenset(record.imports),
        module=record.module,
        own=tuple(found["own"]),
    )


def _content(one: SourceFile) -> tuple[bytes, bool]:
    if one.data is not None:
        return one.data, False
    assert one.origin is not None
    try:
        with open_checked(one.origin) as file:
            runs = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
            return file.read(), runs
    except OSError as error:
        raise SourceError(
            f"{one.path} cannot be read: {error.strerror or error}.",
            "Fix the file's permissions, or leave it out of %files.",
        ) from error


def _record(told: Mapping[str, Any]) -> Record:
    return Record(
        str(told["header"]),
        str(told["shown"]),
        str(told["module"]),
        tuple(map(str, told["imports"])),
        tuple(
            (str(kind), str(path), base64.b64decode(data), bool(runs))
            for kind, path, data, runs in told["files"]
        ),
        tuple((str(name), str(text)) for name, text in told["facts"].items()),
    )
