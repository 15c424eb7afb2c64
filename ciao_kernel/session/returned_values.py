"""Sentences of a cell about the files and values that its job has given back (``%output``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ciao_kernel.delivery import replica_files
from ciao_kernel.delivery.output import results
from ciao_kernel.delivery.output.returned_files import ReturnedFile, ReturnedFiles
from ciao_kernel.delivery.replica_files import Found
from ciao_kernel.delivery.transfers import size_text
from ciao_kernel.magics.directives import event_folder, outputs, warm
from ciao_kernel.model import Job, Status
from ciao_kernel.model.outputs import OutputWay, event_files
from ciao_kernel.session.warm.found_runs import RUN, as_run
from ciao_kernel.visible_text import listed, visible

_WAYS = {
    OutputWay.EXEC: "exec",
    OutputWay.LOG: "the log",
    OutputWay.S3: "the bucket",
    OutputWay.REGISTRY: "the registry",
    OutputWay.CLAIM: "the claim",
}
_NAMED = 3
"""Maximum number of replicas that are named for a file."""
_LISTED = 8
"""Maximum number of files that are named."""
_MANY = 40
"""More variables than these may be too many for a termination message."""


def sentences(job: Job, status: Status) -> Iterator[str]:
    """Yield what came back, and what did not and why; nothing for a job without ``%output``.

    Args:
        job: The job, which is over.
        status: Its last status.
    """
    if (paths := outputs.paths(job.header)) and (run := _run(job)):
        yield from _of_files(run, paths, status.tries)
    if names := outputs.names(job.header):
        yield from _of_values(job, status, names)
    if folder := event_folder.event_folder_in(job.header):
        yield from _of_events(job, folder, status.tries)


def _run(job: Job) -> Job | None:
    """Return the job; of a warm one the newest run that has a folder here, None without one."""
    if not warm.is_warm(job.header) or job.warm_run:
        return job
    base = Path(job.files if job.on_cluster else job.workdir)
    names = [one.name.removeprefix(RUN) for one in base.glob(f"{RUN}*")]
    number = max((int(name) for name in names if name.isdigit()), default=0)
    return as_run(job, number, job.workdir) if number else None


def _of_values(job: Job, status: Status, names: Sequence[str]) -> Iterator[str]:
    replica, values = results.of_job(job, status)
    if replica is None:
        yield f"no values came back for %output: {_why_none(status, names)}."
        if job.on_cluster and len(names) > _MANY:
            yield (
                f"%output: more than some {_MANY} variables may be too many for the message of a "
                "pod; collect them in a dict."
            )
        return
    if not values.given:
        told = [values.fault(name) for name in values.names[:_LISTED]]
        yield f"no values came back for %output: {' '.join(told)}"
        return
    if found := ", ".join(values):
        yield f"brought back from {replica}: {found} (_job.result, or the files in {values.place})"
    for name in values.names:
        if text := values.fault(name) or values.note(name):
            yield f"%output: {text}"


def _why_none(status: Status, names: Sequence[str]) -> str:
    """Return why a program has told nothing of its variables, which it does at its end."""
    codes = {one.replica: one.exit_code for one in status.replicas}
    code = codes.get(status.decided_by) if status.decided_by else None
    if code is not None and code > 0:  # its error is shown
        return f"the program failed before it could give back {' or '.join(names)}"
    return (
        f"when the program ended it had no variable {' or '.join(names)}, it ended by a signal or "
        "os._exit, or its Python is older than 3.8"
    )


def _of_events(job: Job, folder: str, tries: int) -> Iterator[str]:
    """Yield why TensorBoard shows nothing, if the program wrote no event files."""
    if job.on_cluster:
        returned = ReturnedFiles(Path(job.results), tries)
        found = not returned.known or event_files(folder) not in returned.missing()
    else:
        found = any(Path(job.workdir, folder).rglob("*tfevents*"))
    if not found:
        yield (
            f"%tensorboard: the program wrote no event files into {visible(folder)}. Its path is "
            "the variable CIAO_LOGDIR."
        )


def _of_files(job: Job, words: Sequence[str], tries: int) -> Iterator[str]:
    if job.on_cluster:
        yield from of_pods(job, ReturnedFiles(Path(job.results), tries))
    else:
        yield from of_folder(job, replica_files.find(job.workdir, list(words)))


def of_folder(job: Job, found: Found, named: Sequence[str] = ()) -> Iterator[str]:
    """Yield what a job of this machine has in its folder.

    Args:
        job: The job.
        found: Its files.
        named: Paths that the user has named; those that are missing are not told.
    """
    source = _source(named)
    if found.sizes:
        files = [f"{path} ({size_text(size)})" for path, size in found.sizes.items()]
        yield f"files of {source}: {listed(files, _LISTED)}, in {job.workdir}"
    yield from _rest([one for one in found.missing if one not in named], found.left_out, source)
    yield from _faults([f"{path} ({why})" for path, why in found.faults.items()], source)


def of_pods(job: Job, returned: ReturnedFiles, named: Sequence[str] = ()) -> Iterator[str]:
    """Yield what came back from the pods of a job.

    Args:
        job: The job.
        returned: Its files on this machine.
        named: Paths that the user has named; those that are missing are not told.
    """
    source = _source(named)
    if not returned.known:
        yield (
            f"no files came back for {source}: the pods have ended before they could be fetched, "
            "or a fetch failed."
        )
        return
    files = returned.files()
    of_last = [one for one in files if one.tries == returned.tries]
    if texts := [_text(one) for one in of_last if not one.old]:
        ways = " and ".join(_WAYS[way] for way in returned.ways())
        by = f" by {ways}" if ways else ""
        yield f"brought back{by}: {listed(texts, _LISTED)}, to {job.results}"
    folder = event_folder.event_folder_in(job.header)
    events = (event_files(folder),) if folder else ()
    missing = [one for one in returned.missing() if one not in events and one not in named]
    yield from _rest(missing, returned.left_out(), source)
    yield from _faults(returned.faults(), source)
    if changed := returned.changed():
        yield (
            f"{source}: the program wrote these files while they were fetched, so they may be "
            f"mixed: {listed(changed, _LISTED)}."
        )
    if gone := [_text(one) for one in of_last if one.old]:
        yield (
            f"{source}: these came by an earlier fetch, and the last one did not give them, so the "
            f"program may have removed them: {listed(gone, _LISTED)}."
        )
    if older := [_text(one) for one in files if one.tries != returned.tries]:
        yield (
            f"{source}: these are of an earlier try of the job, and its last one did not give "
            f"them: {listed(older, _LISTED)}."
        )


def _text(one: ReturnedFile) -> str:
    more = ", …" if len(one.replicas) > _NAMED else ""
    return f"{one.at} ({size_text(one.size)}, {', '.join(one.replicas[:_NAMED])}{more})"


def _source(named: Sequence[str]) -> str:
    """Return what has asked for the files: the header of the cell, or paths of a command."""
    return "the given paths" if named else "%output"


def _rest(missing: Sequence[str], left_out: Sequence[str], source: str) -> Iterator[str]:
    if missing:
        yield f"{source}: no file matches {', '.join(map(visible, missing))}."
    if left_out:
        yield f"{source}: links out of the folder, and what is no file, stay: {listed(left_out)}."


def _faults(faults: Sequence[str], source: str) -> Iterator[str]:
    if faults:
        yield f"{source}: these did not come back: {listed(faults, _LISTED)}."
