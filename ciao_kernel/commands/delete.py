"""``ciao delete NAME …``: stop jobs and remove what they left.

Jobs that are named are deleted at once. ``--finished`` may mean many jobs with their models, so it
lists them and asks. Meanwhile a job with ``%retries`` may start again: it is not finished then.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import time
from collections.abc import Sequence

from ciao_kernel.commands import Caller, jobs
from ciao_kernel.commands.shared_arguments import add_job, add_output, where
from ciao_kernel.errors import BackendError, CiaoError, Incomplete, UsageError
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.model import Job, Status
from ciao_kernel.model.status import SILENT
from ciao_kernel.plugins import Backend
from ciao_kernel.session import next_tries
from ciao_kernel.visible_text import counted

_AT_ONCE = 50
"""Jobs that are deleted at the same time: backends share work, and clusters are not flooded."""
_NAMED = 3
"""Limit of jobs that an error names."""
_Found = tuple[Backend, Job, Status]
_ASLEEP = 7 * 86_400
"""Seconds without a sign of life after which another machine counts as gone: one that sleeps may
go on with its job."""


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the jobs, ``--finished`` with its options, and ``--output``."""
    add_job(verb, dest="names", nargs="*", metavar="NAME", help="the jobs")
    verb.add_argument(
        "--finished", action="store_true", help="all your finished jobs; lists them and asks first"
    )
    verb.add_argument(
        "--older",
        default="",
        metavar="TIME",
        help="with --finished: only jobs that ended longer ago, such as 12h or 7d",
    )
    verb.add_argument("--yes", "-y", action="store_true", help="do not ask")
    # Accepted only to be refused with a clear error: `ciao jobs -A` suggests that it exists.
    verb.add_argument("--all-namespaces", "-A", action="store_true", help=argparse.SUPPRESS)
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Delete the jobs, and report each job after its deletion.

    A job that cannot be deleted does not stop the deletion of the others.

    Raises:
        UsageError: No job is named, or too many could be meant.
        CiaoError: A job was not found, or some jobs could not be deleted.
    """
    if args.all_namespaces:
        raise UsageError(
            "delete cannot be combined with --all-namespaces: a mistake could delete too much.",
            "Name one namespace: --namespace NAME.",
        )
    unasked: list[BackendError] = []
    if not args.finished and not args.names:
        raise UsageError("no job is named.", "Name a job, or use --finished for finished jobs.")
    _before(args)  # its error comes before all others
    place = where(args)
    # All jobs are looked up first: if one name is wrong, nothing is deleted.
    found = [await caller.session.find(name, place) for name in dict.fromkeys(args.names)]
    if args.finished:
        named = list(found)
        found += (listed := await _finished(args, caller, named, unasked))
        if found and not args.yes:
            if not await _confirmed(found, args, caller):
                return
            if listed:  # some may have started again meanwhile
                now = await _finished(args, caller, named, unasked, quiet=True)
                same = {(_key(job), job.uid) for _, job, _ in now}
                found = named + [one for one in listed if (_key(one[1]), one[1].uid) in same]
    text = args.output == "text"
    gone: set[tuple[str, str, str, str]] = set()
    faults: list[tuple[Job, CiaoError]] = []

    async def delete(backend: Backend, job: Job, status: Status) -> None:
        try:
            await backend.delete(job)
        except CiaoError as fault:
            faults.append((job, fault))
            return
        gone.add(_key(job))
        if text:
            caller.write(_sentence(job, status))

    try:
        for start in range(0, len(found), _AT_ONCE):
            await asyncio.gather(*(delete(*one) for one in found[start : start + _AT_ONCE]))
    finally:  # report deleted jobs also after an interrupt
        if not text:
            records = [_record(job, status) for _, job, status in found if _key(job) in gone]
            caller.write(json.dumps(records, indent=2) + "\n")
    if text and not found:
        caller.write("There was nothing to delete.\n")
    if faults:
        raise _combined(faults)
    # Folders that are not used are still there; a cluster that does not answer is left alone.
    if left := next((fault for fault in unasked if isinstance(fault, Incomplete)), None):
        raise left


async def _finished(
    args: argparse.Namespace,
    caller: Caller,
    named: Sequence[_Found],
    unasked: list[BackendError],
    *,
    quiet: bool = False,
) -> list[_Found]:
    """Return this user's finished jobs, without those that may go on.

    Args:
        args: The command's arguments.
        caller: Its caller.
        named: Jobs that the command names, which are left out.
        unasked: Receives why jobs could not be listed.
        quiet: Do not tell which jobs are left alone.
    """
    before, place = _before(args), where(args)
    known = {_key(job) for _, job, _ in named}
    # If the user names a place and it does not answer, this is an error, not an empty list.
    listed = await caller.session.jobs(None if place.is_explicit else unasked, place)
    found: list[_Found] = []
    asleep: list[str] = []
    again: list[str] = []
    for job, status in listed:
        late = before is not None and status.since >= before
        if not status.over or late or not caller.session.owns(job) or _key(job) in known:
            continue
        grace = caller.session.settings.grace(job.grace)
        if _may_sleep(status):
            asleep.append(job.name)
        elif next_tries.is_due(job, status, grace, time.time()):
            again.append(job.name)
        else:
            found.append((caller.session.backend(job.backend), job, status))
    if args.output == "text" and not quiet:
        if asleep:
            caller.write(_left_alone(asleep, "whose machine may only sleep"))
        if again:
            caller.write(_left_alone(again, "which may be starting again (%retries)"))
    return found


def _before(args: argparse.Namespace) -> float | None:
    """Return the time before which a job must have ended; None if any time will do.

    Raises:
        UsageError: ``--older`` is wrong, or ``--finished`` is missing.
    """
    if not args.older:
        return None
    if not args.finished:
        raise UsageError("--older belongs to --finished.", "Add --finished, or leave --older out.")
    try:
        return time.time() - Duration().parse(args.older)
    except ValueError:
        raise UsageError(
            f"--older cannot be {args.older!r}.", "Write a time span such as 90m, 12h or 7d."
        ) from None


def _may_sleep(status: Status) -> bool:
    return status.reason == SILENT and time.time() - status.since < _ASLEEP


def _left_alone(names: Sequence[str], why: str) -> str:
    named = " ".join(names)
    count = "1 job stays" if len(names) == 1 else f"{len(names)} jobs stay"
    return f"{count}, {why}; `ciao delete {named}` deletes by name.\n"


async def _confirmed(found: Sequence[_Found], args: argparse.Namespace, caller: Caller) -> bool:
    """List the jobs, and return whether the user wants to delete them.

    Raises:
        UsageError: A program runs the command or reads its output, and nobody can answer.
    """
    count = counted(len(found), "job")
    is_json = args.output == "json"
    command = shlex.join(["%ciao", "delete", "--finished", *_options(args), "--yes"])
    nobody = caller.ask is None and (caller.terminal or is_json)
    if not (nobody and is_json):  # no program expects a table in JSON
        caller.write(jobs.table([(job, status) for _, job, status in found], where(args)))
    if nobody:
        raise UsageError(
            f"nothing was deleted: --finished means {count}, and nobody can confirm it here.",
            "Add --yes to delete them." if caller.terminal else f"`{command}` deletes them.",
        )
    if caller.ask is None:  # in a notebook
        caller.write(f"Nothing was deleted yet. `{command}` deletes {count}, with all files.\n")
        return False
    answer = await caller.ask(f"Delete {count}, with all files? [y/N] ")
    if answer.lower() in ("y", "yes"):
        return True
    caller.write("Nothing was deleted.\n")
    return False


def _options(args: argparse.Namespace) -> list[str]:
    """Return the given options and names, as words."""
    names = ("older", "namespace", "context", "backend")
    given = {f"--{name}": getattr(args, name) for name in names}
    given["--output"] = "" if args.output == "text" else args.output
    return [word for name, value in given.items() if value for word in (name, value)] + [
        *args.names
    ]


def _combined(faults: Sequence[tuple[Job, CiaoError]]) -> CiaoError:
    """Return one error for all jobs that could not be deleted."""
    (_, first), *others = faults
    if not others:
        return first
    named = " ".join(f"{job.name}: {fault.message}" for job, fault in faults[:_NAMED])
    more = f" And {len(faults) - _NAMED} more." if len(faults) > _NAMED else ""
    text = f"{len(faults)} jobs could not be deleted completely. {named}{more}"
    return BackendError(text, first.hint)


def _key(job: Job) -> tuple[str, str, str, str]:
    return job.backend, job.context, job.place, job.name


def _sentence(job: Job, status: Status) -> str:
    if job.kind_of_place == "folder":
        return f"{job.name} ({status.state}) and its files were removed.\n"
    place = f"{job.kind_of_place} {job.place}"
    return f"{job.name} ({status.state}) was deleted from the {place}, with its local logs.\n"


def _record(job: Job, status: Status) -> dict[str, str]:
    record = {"name": job.name, "was": str(status.state), "backend": job.backend}
    return record if job.kind_of_place == "folder" else {**record, "namespace": job.place}
