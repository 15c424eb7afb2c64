"""What a cell says about the values that its job has given back (``%output``)."""

from __future__ import annotations

from collections.abc import Iterator

from ciao_kernel.delivery import results
from ciao_kernel.model import Job, Status


def sentences(job: Job, status: Status) -> Iterator[str]:
    """Yield what came back, and what did not and why; nothing for a job without ``%output``.

    Args:
        job: The job, which is over.
        status: Its last status.
    """
    if not any(line.startswith("%output=") for line in job.header.splitlines()):
        return
    replica, values = results.of_job(job, status)
    if replica is None:
        yield (
            "no values came back for %output: the program did not end by itself (a signal, "
            "os._exit), or it has none of these names."
        )
        return
    if found := ", ".join(values):
        place = results.folder(job.files, replica)
        yield f"brought back from {replica}: {found} (_job.result, or the files in {place})"
    for name in values.names:
        if fault := values.fault(name):
            yield f"%output: {fault}"
