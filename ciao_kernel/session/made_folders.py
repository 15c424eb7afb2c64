"""Checks that no file of a job is where ``%output`` or ``%tensorboard`` makes a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from ciao_kernel.errors import SpecError
from ciao_kernel.model import JobSpec, Source
from ciao_kernel.model.outputs import OUTPUT_FOLDER


def check(spec: JobSpec, source: Source) -> None:
    """Check that the folders that a job gets for its program can be made.

    Args:
        spec: The job.
        source: The program and its files.

    Raises:
        SpecError: A file has the name of such a folder, or of one above it.
    """
    included = {file.path for file in source.files}
    paths = {file.path for file in source.all()}
    for directive, folder in _folders(spec):
        for place in (PurePosixPath(folder), *PurePosixPath(folder).parents):
            if str(place) not in paths:
                continue
            owner = "%files" if str(place) in included else "the program"
            other = ", or name another folder in %tensorboard" if directive != "output" else ""
            raise SpecError(
                f"{owner} has the file {place} where %{directive} makes a folder.",
                f"Rename the file{other}.",
                directive=directive,
            )


def _folders(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the directives that make a folder, and where."""
    if OUTPUT_FOLDER in spec.outputs:
        yield "output", OUTPUT_FOLDER
    if spec.tensorboard is not None:
        yield "tensorboard", spec.tensorboard
