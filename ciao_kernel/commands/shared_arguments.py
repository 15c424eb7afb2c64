"""Arguments that several verbs share: the job, its place, its replicas, a time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ciao_kernel.commands import completion
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.magics.directives.cell_lines import LineCount
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.model import Job, Replica, State, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.visible_text import short

if TYPE_CHECKING:
    from ciao_kernel.commands import Caller
    from ciao_kernel.plugins import Backend, Suspending
    from ciao_kernel.session.session import Session


def add_output(verb: argparse.ArgumentParser, *more: str) -> None:
    """Add ``--output`` to a verb: text, json and the verb's further formats."""
    verb.add_argument(
        "--output", "-o", choices=("text", "json", *more), default="text", help="output format"
    )


def add_job(
    verb: argparse.ArgumentParser,
    completer: completion.Completer = completion.jobs,
    **options: Any,
) -> None:
    """Add the name of a job, which Tab completes, and the place of the job to a verb."""
    name = verb.add_argument(**{"dest": "name", "metavar": "NAME", "help": "the job"} | options)
    completion.by(completer, name)
    add_where(verb)


def add_where(verb: argparse.ArgumentParser) -> None:
    """Add ``--namespace``, ``--context`` and ``--backend``; :func:`where` reads them."""
    namespace = verb.add_argument(
        "--namespace", "-n", default="", metavar="NAME", help="look in this namespace"
    )
    completion.by(completion.namespaces, namespace)
    context = verb.add_argument(
        "--context", default="", metavar="NAME", help="look in the cluster of this context"
    )
    completion.by(completion.contexts, context)
    backend = verb.add_argument(
        "--backend", default="", metavar="NAME", help="look only in this backend: local, kubernetes"
    )
    completion.by(completion.backends, backend)


def where(args: argparse.Namespace) -> Where:
    """Return the place of jobs that the options select.

    Raises:
        UsageError: Both a namespace and all namespaces are selected.
    """
    everywhere = getattr(args, "all_namespaces", False)
    if everywhere and args.namespace:
        raise UsageError(
            "--namespace cannot be combined with --all-namespaces.", "Leave one of them out."
        )
    return Where(args.context, args.namespace, everywhere, args.backend)


async def running_job(
    args: argparse.Namespace, caller: Caller, name: str | None = None
) -> tuple[Backend, Job, Status]:
    """Return the job that a verb names, or the only one that runs.

    Args:
        args: The verb's arguments.
        caller: Who calls it.
        name: The job's name, if it is only a part of the verb's argument.

    Raises:
        UsageError: The verb names none, and none runs, or several.
        NoSuchJob: There is no such job.
    """
    place = where(args)
    if asked := args.name if name is None else name:
        return await caller.session.find(asked, place)
    job = await only_running(caller.session, place)
    return await caller.session.find(job.name, Where.of(job))


async def only_running(session: Session, place: Where) -> Job:
    """Return the only job that runs; warm replicas without a run do not.

    Raises:
        UsageError: None runs, or several.
        BackendError: A backend does not answer, but may have a job.
    """
    from ciao_kernel.session.warm import found_runs

    own = session.warm.parked if session.warm else None
    running: list[Job] = []
    idle: list[Job] = []
    faults: list[BackendError] = []
    for job, status in await session.jobs(None if place.is_explicit else faults, place):
        if status.state is State.RUNNING and session.owns(job):
            if own and own.job.reference == job.reference:
                waits = own.run is None
            else:
                waits = await found_runs.is_idle(session.backend(job.backend), job)
            (idle if waits else running).append(job)
    if len(running) == 1:
        return running[0]
    if not running and faults:
        raise faults[0]
    if not running:
        told = [f"The replicas of {one.reference} wait for their next run. " for one in idle]
        raise UsageError("no job runs.", f"{''.join(told[:3])}`%ciao jobs` lists all jobs.")
    names = ", ".join(one.name for one in running[:8])
    raise UsageError(f"{len(running)} jobs run.", f"Name one: {names}.")


def check_runs(job: Job, status: Status) -> None:
    """Raise UsageError if a job is over: its replicas cannot be asked any more."""
    if status.over:
        raise UsageError(
            f"{job.name} is over: {status.state}.",
            f"`%ciao logs {job.reference}` shows what its replicas have written.",
        )


async def suspendable(
    args: argparse.Namespace, session: Session, *, suspended: bool
) -> tuple[Suspending, Job]:
    """Return the job that the arguments name, and its backend, which can suspend it.

    Args:
        args: The verb's arguments.
        session: Finds the job.
        suspended: The job is to be suspended, not resumed.

    Raises:
        UsageError: Jobs of its backend cannot be suspended.
        BackendError: The job is over, or from the backend.
    """
    from ciao_kernel.plugins import Suspending

    backend, job, status = await session.find(args.name, where(args))
    if status.state.over:
        raise BackendError(f"{job.name} is over: {status.state}.", "Run it again.")
    if not isinstance(backend, Suspending):
        if not suspended:
            raise UsageError(
                f"{job.name} is not suspended: the backend {job.backend} suspends no jobs.",
                f"`%ciao attach {job.reference}` follows it.",
            )
        raise UsageError(
            f"{job.name} cannot be suspended: the backend {job.backend} keeps no place for it.",
            f"`%ciao delete {job.reference}` ends it; run it again later.",
        )
    return backend, job


def named_replica(job: Job, name: str, slash: str) -> Replica:
    """Return the replica of NAME/REPLICA.

    Args:
        job: The job NAME.
        name: The text behind the slash.
        slash: The slash; "" if there is none, which is enough for a job of one replica.

    Raises:
        UsageError: The job has no such replica, or several.
    """
    if not slash and len(job.replicas) == 1:
        return job.replicas[0]
    found = next((one for one in job.replicas if str(one) == name), None)
    if found is None:
        known = ", ".join(f"{job.name}/{one}" for one in job.replicas[:20])
        more = ", …" if len(job.replicas) > 20 else ""
        what = (
            f"{job.name} has no replica {name!r}" if slash else f"{job.name} has several replicas"
        )
        raise UsageError(f"{what}.", f"Name one: {known}{more}.")
    return found


def add_member(verb: argparse.ArgumentParser, **options: Any) -> None:
    """Add the name of a job as :func:`add_job` does, and ``--replica``, which may be in the name.

    :func:`take_replica` reads the replica of NAME/REPLICA.
    """
    add_job(verb, completion.members, metavar="NAME[/REPLICA]", **options)
    add_replica(verb)


def take_replica(args: argparse.Namespace) -> None:
    """Move the replica of NAME/REPLICA into ``--replica``."""
    name, slash, member = args.name.partition("/")
    if slash:
        args.name, args.replica = name, [*args.replica, member]


def add_replica(verb: argparse.ArgumentParser) -> None:
    """Add ``--replica`` to a verb."""
    option = verb.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="NAME",
        help="only this role (worker) or replica (worker-0); may be given several times",
    )
    completion.by(completion.replicas, option)


def chosen(names: Sequence[str], job: Job) -> list[Replica]:
    """Return the replicas that ``--replica`` selects, or all replicas without it.

    Raises:
        UsageError: The job has no such role or replica.
    """
    for name in names:
        if not any(one.chosen([name]) for one in job.replicas):
            known = ", ".join(map(str, job.replicas))
            raise UsageError(f"{job.name} has no replica {name}.", f"There are: {known}.")
    return [one for one in job.replicas if one.chosen(names)]


def add_lines(verb: argparse.ArgumentParser) -> None:
    """Add ``--lines`` to a verb; :func:`line_count` reads it."""
    verb.add_argument(
        "--lines",
        default="",
        metavar="N",
        help="keep the first N and the last N lines of each replica; all: every line",
    )


def line_count(text: str) -> int | None:
    """Return the value of ``--lines``; None for an empty text.

    Raises:
        UsageError: The text is neither a number of lines nor ``all``.
    """
    if not text:
        return None
    kind = LineCount()
    try:
        return kind.parse(text)
    except ValueError:
        raise UsageError(
            f"--lines cannot be {short(text)!r}: expected {kind.expected}.",
            "For example: --lines 500 or --lines all",
        ) from None


def add_since(verb: argparse.ArgumentParser) -> None:
    """Add ``--since`` to a verb; :func:`moment` reads it."""
    verb.add_argument(
        "--since",
        default="",
        metavar="TIME",
        help="leave out older lines: 10m, 2h, or a time such as 2026-01-31T18:00:00Z "
        "(jobs on a cluster)",
    )


def moment(text: str) -> float:
    """Return a ``--since`` as seconds since the epoch; 0 for an empty text.

    Raises:
        UsageError: The text is not a time.
    """
    if not text:
        return 0.0
    try:
        return time.time() - Duration().parse(text)
    except ValueError:
        pass
    try:
        # A time without an offset is in the user's time zone.
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since cannot be {text!r}.",
            "Write a time span such as 90s, 10m or 2h30m, or a time such as 2026-01-31T18:00:00Z.",
        ) from None
