"""``ciao jobs``: list all jobs, from any kernel or terminal."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from pathlib import Path

from ciao_kernel.commands import Caller
from ciao_kernel.commands.job_json import job_record
from ciao_kernel.commands.shared_arguments import add_output, add_where, where
from ciao_kernel.delivery.warm import marks
from ciao_kernel.display.columns import columns
from ciao_kernel.display.plotting import newest_metric
from ciao_kernel.errors import BackendError, Incomplete
from ciao_kernel.model import Job, State, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.model.times import age, span
from ciao_kernel.private_files import opened_file
from ciao_kernel.session.owner import current_user
from ciao_kernel.visible_text import counted, one_line

_RECENT = 86_400
"""Seconds for which a list shows a job that has ended."""
_END_OF_LOG = 4096
"""Bytes of a log that are read for its newest metric."""
_NONE = "–"


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the place, the filters and ``--output``."""
    verb.usage = "%(prog)s [options]"
    add_where(verb)
    verb.add_argument(
        "--all-namespaces", "-A", action="store_true", help="look in all namespaces of the cluster"
    )
    verb.add_argument("--mine", action="store_true", help="only your own jobs, not your team's")
    verb.add_argument("--running", action="store_true", help="only jobs that still run")
    verb.add_argument(
        "--all", "-a", action="store_true", help="also jobs that ended more than a day ago"
    )
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write one line per job. JSON has all jobs; the list leaves out those that ended long ago."""
    place = where(args)
    faults: list[BackendError] = []
    # If the user names a place, a missing answer is an error; otherwise show the jobs found.
    try:
        found = await caller.session.jobs(
            None if place.is_explicit or place.everywhere else faults, place
        )
    except Incomplete as error:
        found, faults = list(error.found), [error]
    if args.mine:
        found = [(job, status) for job, status in found if caller.session.owns(job)]
    known = len(found)
    if args.running:
        found = [(job, status) for job, status in found if not status.over]
    if args.output == "json":
        records = [job_record(job, status) for job, status in found]
        caller.write(json.dumps(records, indent=2) + "\n")
    else:
        recent = [one for one in found if args.all or not _is_old(one[1], time.time())]
        if recent:
            caller.write(table(recent, place))
        caller.write(_remark(len(recent), len(found), known, here=bool(faults)))
    if faults:
        raise faults[0]  # the jobs found are shown, but an incomplete list is a failure


def _is_old(status: Status, now: float) -> bool:
    return status.over and now - status.since > _RECENT


def _remark(shown: int, found: int, known: int, *, here: bool) -> str:
    """Return a line about the jobs that the list lacks; "" if it has all jobs."""
    where = " on this machine" if here else ""
    if not known:
        return f"There are no jobs{where}.\n"
    if not found:  # with --running
        ended = "1 job has ended" if known == 1 else f"{known} jobs have ended"
        return f"There are no running jobs{where}; {ended}.\n"
    if hidden := found - shown:
        ended = counted(hidden, "job")
        return f"{ended} ended more than a day ago: `ciao jobs --all` lists all.\n"
    return ""


def table(found: list[tuple[Job, Status]], place: Where) -> str:
    """Return a table of jobs; it names their namespaces if they are in several.

    Args:
        found: The jobs, in the order of the rows.
        place: Where the user looked for them.
    """
    spaces = {job.place for job, _ in found if job.kind_of_place == "namespace"}
    elsewhere = not place.is_explicit and any("--namespace" in job.options for job, _ in found)
    return _table(found, spaces=place.everywhere or elsewhere or len(spaces) > 1)


def _table(found: list[tuple[Job, Status]], *, spaces: bool) -> str:
    heads = ("NAME", "FRAMEWORK", "BACKEND", "STATE", "REPLICAS", "AGE", "TOOK", "LAST", "OWNER")
    me = current_user()
    rows = [heads, *(_row(job, status, me) for job, status in found)]
    if spaces:
        column = ["NAMESPACE"]
        column += [job.place if job.kind_of_place == "namespace" else "–" for job, _ in found]
        rows = [(name, *row) for name, row in zip(column, rows, strict=True)]
    return columns([map(one_line, row) for row in rows]) + "\n"


def _row(job: Job, status: Status, me: str) -> tuple[str, ...]:
    return (
        job.name,
        job.framework,
        job.backend,
        status.word,
        _replicas(status),
        age(time.time() - job.created),
        span((status.since if status.state.over else time.time()) - job.created),
        _newest_metric(job, status),
        _owner(job, me),
    )


def _owner(job: Job, me: str) -> str:
    """Return who started a job, as short as it is clear: rows must fit the output of a cell.

    Of this user's jobs that is the kernel; a detached one does not depend on its kernel.
    """
    user, _, process = job.owner.partition(" ")
    if user != me or not process:
        return job.owner + (", detached" if job.detached else "")
    if job.detached:
        return "detached"
    return f"process {process}" if process.isdecimal() else process  # of an earlier version


def _newest_metric(job: Job, status: Status) -> str:
    """Return the newest metric in the first log on this machine that has one: ``loss 0.31``."""
    for one in status.replicas:
        # A log that others may have replaced by a link or a pipe is not read.
        with contextlib.suppress(OSError, ValueError), opened_file(Path(one.log)) as file:
            size = os.fstat(file).st_size
            end = os.pread(file, _END_OF_LOG, max(0, size - _END_OF_LOG))
            if found := newest_metric(marks.without(end), job.plot):
                return found
    return _NONE


def _replicas(status: Status) -> str:
    """Return how many replicas a job has and, until all ended, how many of them run."""
    running = sum(one.state is State.RUNNING for one in status.replicas)
    if status.state.over and not running:
        return str(len(status.replicas))
    return f"{running}/{len(status.replicas)} running"
