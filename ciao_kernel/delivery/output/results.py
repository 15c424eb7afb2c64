"""The values that come back from a job (``%output``): their way out, and reading them here.

The planning of a cell adds the writer to its source (:func:`with_files`), and the backends give
each replica :func:`variables`. A replica's values arrive in :func:`folder`: local replicas write
there, and from a pod :func:`.values_message.unpack` takes them out of its termination message.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ciao_kernel.delivery import replica_files, replica_program, site_folder
from ciao_kernel.delivery.input import (
    input_loader,
    parquet_losses,
    value_formats,
    value_layouts,
)
from ciao_kernel.delivery.output import (
    absent_values,
    keeper_program,
    large_values,
    model_remedies,
    parquet_check,
    result_views,
    result_writer,
)
from ciao_kernel.delivery.output.absent_facts import AbsentFacts
from ciao_kernel.delivery.output.large_values import LargeValues
from ciao_kernel.delivery.output.result_writer import (
    FILES,
    FROM,
    INDEX,
    MOST,
    NAMES,
    PROGRAM,
    TARGET,
)
from ciao_kernel.delivery.output.values_message import entries, parsed
from ciao_kernel.delivery.transfers import size_text
from ciao_kernel.magics.directives import event_folder, outputs, warm
from ciao_kernel.model import Artifact, Job, JobSpec, Replica, Source, Status
from ciao_kernel.model.outputs import OUTPUT_FOLDER, event_files
from ciao_kernel.visible_text import visible

KEEPER = f"{keeper_program.NAME}.py"
"""File in ciao's folder that keeps the program's files in a pod after its end."""
_FILES = f"{replica_program.NAME}.py"
MESSAGE_FILE = "/dev/termination-log"
"""Default file of a container's termination message."""
_INSTEAD = "write it to a file that %output names, or that is in a %volume."
PLACE = f"{site_folder.FOLDER}/results"
"""Folder for the values of all replicas, in the folder of their job."""
_RUN = "run-"
_PACKAGES = {".safetensors": "safetensors", ".parquet": "pandas pyarrow"}
"""What reads a value, by the suffix of its file."""


def with_files(source: Source, spec: JobSpec) -> Source:
    """Return a source with what a replica needs to write its values, and to keep its files."""
    values = {
        "ciao_parquet_losses.py": parquet_losses,
        "ciao_value_formats.py": value_formats,
        "ciao_value_layouts.py": value_layouts,
        "ciao_absent_values.py": absent_values,
        "ciao_result_writer.py": result_writer,
    }
    if spec.output_names:
        source = site_folder.add(source, _texts(values))
    if not (spec.kept_paths or spec.output_names):  # values may be too large for a message
        return source
    keeper = {KEEPER: keeper_program.text(), _FILES: replica_program.text()}
    return site_folder.add(source, keeper, start=False)


def output_folder(spec: JobSpec, workdir: str) -> dict[str, str]:
    """Return the variables that name the folder of ``%output`` without a value; empty without it.

    Programs for SageMaker know the other names (sagemaker-training-toolkit, ENVIRONMENT_VARIABLES).
    """
    if OUTPUT_FOLDER not in spec.outputs:
        return {}
    place = f"{workdir}/{OUTPUT_FOLDER.rstrip('/')}"
    return dict.fromkeys(("CIAO_OUTPUT", "SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR"), place)


def variables(spec: JobSpec, artifact: Artifact, target: str) -> dict[str, str]:
    """Return the variables of the writer in a replica; empty without ``%output``.

    Args:
        spec: The cell's header.
        artifact: How the program starts.
        target: Folder or file for the values.
    """
    if not spec.output_names:
        return {}
    words = "\n".join(artifact.program_words)
    return {NAMES: " ".join(spec.output_names), PROGRAM: words, TARGET: target}


def file_variables(workdir: str, most: int, replica: Replica) -> dict[str, str]:
    """Return the variables of the writer where values may come back as files of a pod.

    Args:
        workdir: The program's folder.
        most: Largest number of bytes of all.
        replica: The only one that gives some.
    """
    place = f"{workdir}/{replica_files.VALUES.rstrip('/')}"
    return {FILES: place, MOST: str(most), FROM: str(replica)}


def folder(job_files: str | Path, replica: Replica, run: int = 0) -> Path:
    """Return the folder for the values of a replica.

    Args:
        job_files: The job's folder on this machine.
        replica: The replica.
        run: Number of the run in warm replicas; 0 for any other job.
    """
    place = Path(job_files) / PLACE
    return place / f"{_RUN}{run}" / str(replica) if run else place / str(replica)


def path_words(header: str) -> tuple[str, ...]:
    """Return the words for files that a job's replicas send at their end: paths and event files.

    Args:
        header: The job's header.
    """
    logs = event_folder.event_folder_in(header)
    return (*outputs.paths(header), *((event_files(logs),) if logs else ()))


def file_words(header: str) -> tuple[str, ...]:
    """Return the word for the values among a job's files; none if it gives no values.

    Args:
        header: The job's header.
    """
    return (replica_files.VALUES,) if outputs.names(header) else ()


def folders(header: str, job_files: Path) -> Callable[[str], Path] | None:
    """Return what gives the folder for the values of a replica, by its name.

    Args:
        header: The job's header.
        job_files: The job's folder on this machine.

    Returns:
        None for a job that gives no values.
    """
    return (job_files / PLACE).joinpath if outputs.names(header) else None


def of_job(job: Job, status: Status) -> tuple[Replica | None, Results]:
    """Return the values of a job, and the replica that gave them; None if there are none yet.

    They are those of the replica that decides about the job, or of the first one that gave some; in
    a job with several runs those of its own run, or of the newest one.

    Args:
        job: The job.
        status: Its last known status.
    """
    run = job.warm_run or _newest_run(job)
    first = [status.decided_by] if status.decided_by else []
    without: tuple[Replica | None, Results] | None = None
    for replica in (*first, *job.replicas):
        found = Results(folder(job.files, replica, run), of_pod=job.on_cluster)
        if found.given:
            return replica, found
        if found.arrived and without is None:
            without = replica, found
    return without or (None, found)


def _newest_run(job: Job) -> int:
    """Return the last run of a warm job that gave values; 0 if there is none."""
    if not warm.is_warm(job.header):
        return 0
    names = [one.name for one in (Path(job.files) / PLACE).glob(f"{_RUN}*")]
    return max((int(name[len(_RUN) :]) for name in names if name[len(_RUN) :].isdigit()), default=0)


class Results(Mapping[str, Any]):
    """The values of one replica; each is read when it is first used.

    Args:
        place: Result of :func:`folder`.
        of_pod: True if they came from a pod: its tables are checked before they are read.
    """

    def __init__(self, place: Path, *, of_pod: bool = True) -> None:
        self.place, self._large, self._of_pod = place, LargeValues(place), of_pod
        index = None
        with contextlib.suppress(OSError):
            index = parsed((place / INDEX).read_text(encoding="utf-8"))
        self.arrived = index is not None
        """False as long as the program has not ended, or if it has ended without giving values."""
        names = (index or {}).get("names")
        self.names = tuple(map(str, names)) if isinstance(names, list) else ()
        """What the cell has asked for."""
        self._cut = bool((index or {}).get("cut"))
        self._entries = dict(entries(index or {}))
        self.given = bool(self._entries) or self._cut
        """False if the program had none of the variables at its end."""
        self._facts = AbsentFacts(index or {})
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            if fault := self.fault(name):
                raise KeyError(fault)
            entry = self._entries[name]
            path, kind = self._path(name), str(entry.get("type"))
            self._read[name] = _value(path, kind, _layout(entry), self._of_pod)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._entries if not self.fault(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<results: {', '.join(f'{name}={self._text(name)}' for name in self) or 'none'}>"

    def _repr_html_(self) -> str:
        rows = [(name, self._text(name)) for name in self]
        missing = [name for name in self.names if self.arrived and self.fault(name)]
        return result_views.html([*rows, *((name, self.fault(name)) for name in missing)])

    def _text(self, name: str) -> str:
        entry = self._entries[name]
        kind = str(entry.get("type"))[:80]
        return result_views.text(name, self._path(name), kind, _layout(entry))

    def _path(self, name: str) -> Path:
        """Return the path of a value's file, which may not be here."""
        entry = self._entries[name]
        found = self._large.find(str(entry["file"]), str(entry.get("digest") or ""))
        return found or self.place / str(entry["file"])

    def fault(self, name: str) -> str:
        """Return why there is no value of a name, as a sentence; "" if there is one."""
        entry = self._entries.get(name)
        if not self.arrived:
            return (
                f"{name} has not come back: the program has not ended, had no such variable at "
                "its end, or did not end by itself."
            )
        if entry is None and self._cut and name in self.names:
            return (
                f"{name} has not come back: the pod has so many containers that the cluster has "
                f"cut the message with its values; {_INSTEAD}"
            )
        if entry is None:
            return (
                self._facts.sentence(name)
                if name in self.names
                else f"{name} was not asked for: %output={' '.join((*self.names, name))}."
            )
        kind = str(entry.get("type"))[:80]
        if "fault" in entry:
            reason = str(entry["fault"])[:200].rstrip(".")
            remedy = model_remedies.remedy(name, entry.get("library"))
            return f"{name}, a {kind}, cannot come back: {reason}{remedy}."
        if not large_values.is_file(name, entry.get("file")) or not self._path(name).is_file():
            return self._absence(name, entry)
        return ""

    def note(self, name: str) -> str:
        """Return how a value that came back differs from that of the program; "" if it does not."""
        return "" if self.fault(name) else result_views.note(name, self._entries[name].get("lost"))

    def _absence(self, name: str, entry: Mapping[str, Any]) -> str:
        """Return why the file of a value is not here, as a sentence."""
        count, most, number = entry.get("size"), entry.get("most"), entry.get("errno")
        large = f"{count:,} bytes" if isinstance(count, int) else "too many bytes"
        # A pod may send any numbers: those of C, and of files.
        if isinstance(number, int) and 0 < number < 1 << 31:
            return f"{name} has {large}, and its file could not be written: {os.strerror(number)}."
        if isinstance(most, int) and 0 < most < 1 << 63:
            return (
                f"{name} has {large}, and all values that come back as files have "
                f"{size_text(most)} at most here."
            )
        if entry.get("digest"):
            why = self._large.fault(str(entry.get("file"))) or "it was not fetched in time"
            why = visible(why).rstrip(".")
            return f"{name} has {large}, and its file did not come back: {why}."
        return f"{name} has {large}, and a pod gives back 3,000 bytes at most; {_INSTEAD}"


def _layout(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file of a value does not tell; a pod may send anything."""
    found = entry.get("layout")
    return found if isinstance(found, dict) else {}


def _value(path: Path, kind: str, layout: dict[str, Any], of_pod: bool) -> Any:
    try:
        if of_pod and path.suffix == ".parquet":
            parquet_check.check(path)
        return input_loader.read(path, kind, layout)
    except ImportError as error:
        if packages := _PACKAGES.get(path.suffix):
            error.add_note(f"The value is the file {path}. `%pip install {packages}` reads it.")
            raise
    # The kernel has no torch, for example: an array then.
    return input_loader.read(path, "", layout)


def _texts(modules: Mapping[str, ModuleType]) -> dict[str, str]:
    return {name: inspect.getsource(module) for name, module in modules.items()}
