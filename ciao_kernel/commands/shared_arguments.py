"""Arguments that several verbs share: the job, its place, its replicas, a time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ciao_kernel.commands import completion
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.directives.cell_lines import LineCount
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.model import Job, Replica, State, Status
from ciao_kernel.model.queries import Where
from ciao_kernel.visible_text import short

if TYPE_CHECKING:
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
    verb.add_argument(
        "--backend", default="", metavar="NAME", help="look only in this backend: local, kubernetes"
    )


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


async def only_running(session: Session, place: Where) -> str:
    """Return the name of the only job that runs; warm replicas without a run do not.

    Raises:
        UsageError: None runs, or several.
    """
    from ciao_kernel.session.warm import found_runs

    own = session.warm.parked if session.warm else None
    running: list[Job] = []
    idle: list[Job] = []
    for job, status in await session.jobs([], place):
        if status.state is State.RUNNING and session.owns(job):
            if own and own.job.reference == job.reference:
                waits = own.run is None
            else:
                waits = await found_runs.is_idle(session.backend(job.backend), job)
            (idle if waits else running).append(job)
    if len(running) == 1:
        return running[0].name
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
        help="leave out older lines: 10m, 2h, or a time such as 2026-01-31T18:00:00Z",
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
