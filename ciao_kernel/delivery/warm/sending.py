"""Packs what the agents of warm replicas get: the agent itself, and the program of each run."""

from __future__ import annotations

import base64
import io
import os
import stat
import tarfile
from dataclasses import dataclass, replace

from ciao_kernel.delivery.input.held_file import open_checked
from ciao_kernel.delivery.warm import agent_program, ahead, zygote_program
from ciao_kernel.delivery.warm.agent.zygotes import ZYGOTE
from ciao_kernel.errors import SpecError
from ciao_kernel.model import JobSpec, Source, SourceFile
from ciao_kernel.model.environment import ALWAYS, UNLESS_SET
from ciao_kernel.model.outputs import OUTPUT_FOLDER

AGENT = "ciao_warm_agent.py"
_MOST = 32 << 20
"""Bytes of a run's files: they are part of a command."""


def agent() -> Source:
    """Return the agent as the program of a job."""
    zygote = _file(ZYGOTE, zygote_program.text().encode())
    return Source(_file(AGENT, agent_program.text().encode()), (zygote,))


def _file(path: str, data: bytes) -> SourceFile:
    return SourceFile(path, data, size=len(data))


@dataclass(frozen=True, slots=True)
class Packed:
    """The program of one run, ready to be sent to each replica."""

    archive: str
    """Its files, as base64 of a compressed archive."""
    program: str
    environment: dict[str, str]
    """Variables that must be there before the imports."""
    modules: tuple[str, ...]
    """Modules that it imports, and that can be imported ahead."""
    doubt: str
    """Why it needs a fresh interpreter; "" if a fork is right."""
    learns: bool


def pack(source: Source, spec: JobSpec) -> Packed:
    """Pack a program with its modules and files.

    Raises:
        SpecError: They are too large.
        SourceError: A file cannot be read.
    """
    source = replace(source, own=())  # the agent has them
    if sum(file.size for file in source.all()) > _MOST:
        raise SpecError(
            f"%warm sends at most {_MOST >> 20} MiB of files with each run.",
            "Mount the data with %volume, or leave %warm out.",
            directive="warm",
        )
    texts: dict[str, str] = {}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        if OUTPUT_FOLDER in spec.outputs:
            place = tarfile.TarInfo(OUTPUT_FOLDER)
            place.type, place.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(place)
        for file in source.all():
            data, mode = _content(file)
            entry = tarfile.TarInfo(file.path)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
            if file is source.entry or _is_module(file, source):
                texts[file.path] = data.decode("utf-8", "replace")
    modules = {path: text for path, text in texts.items() if path != source.entry.path}
    found = ahead.read(texts[source.entry.path], modules)
    variables = dict(spec.env)
    known = {*variables, *ALWAYS, *UNLESS_SET}
    environment = {
        **{name: value for name, value in spec.env if ahead.is_early(name, list(texts.values()))},
        **{name: value for name, value in found.defaults.items() if name not in known},
        **found.variables,
    }
    return Packed(
        base64.b64encode(buffer.getvalue()).decode(),
        source.entry.path,
        environment,
        tuple(sorted(source.imports & ahead.HEAVY)),
        found.doubt,
        found.learns,
    )


def _is_module(file: SourceFile, source: Source) -> bool:
    """Return whether the program imports a file; %files may name it too."""
    name = file.path.partition("/")[0].removesuffix(".py")
    return file in source.modules or (file.path.endswith(".py") and name in source.imports)


def _content(file: SourceFile) -> tuple[bytes, int]:
    if file.origin is None:
        return file.data or b"", 0o644
    with open_checked(file.origin) as stream:
        executable = os.fstat(stream.fileno()).st_mode & stat.S_IXUSR
        return stream.read(), 0o755 if executable else 0o644
