"""Arguments that several verbs share: which job, where it is, which replicas, since when."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ciao_kernel.commands import completion
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import Where


def add_output(verb: argparse.ArgumentParser, *more: str) -> None:
    """Give a verb ``--output``: text, json and what else it knows."""
    verb.add_argument(
        "--output", "-o", choices=("text", "json", *more), default="text", help="form of the output"
    )


def add_job(
    verb: argparse.ArgumentParser,
    completer: completion.Completer = completion.jobs,
    **options: Any,
) -> None:
    """Give a verb the name of a job, which Tab completes, and the place where it is."""
    name = verb.add_argument(**{"dest": "name", "metavar": "NAME", "help": "the job"} | options)
    completion.by(completer, name)
    add_where(verb)


def add_where(verb: argparse.ArgumentParser) -> None:
    """Give a verb ``--namespace`` and ``--context``; :func:`where` reads them."""
    namespace = verb.add_argument(
        "--namespace", "-n", default="", metavar="NAME", help="look in this namespace"
    )
    completion.by(completion.namespaces, namespace)
    context = verb.add_argument(
        "--context", default="", metavar="NAME", help="look in the cluster of this context"
    )
    completion.by(completion.contexts, context)
    verb.add_argument(
        "--backend", default="", metavar="NAME", help="look there alone: local, kubernetes"
    )


def where(args: argparse.Namespace) -> Where:
    """Where the user says that jobs are.

    Raises:
        UsageError: One namespace and all of them.
    """
    everywhere = getattr(args, "all_namespaces", False)
    if everywhere and args.namespace:
        raise UsageError("one namespace is named, and all are asked for.", "Leave one of them out.")
    return Where(args.context, args.namespace, everywhere, args.backend)


def add_replica(verb: argparse.ArgumentParser) -> None:
    """Give a verb ``--replica``."""
    option = verb.add_argument(
        "--replica",
        action="append",
        default=[],
        metavar="NAME",
        help="only this role (worker) or replica (worker-0); may be given several times",
    )
    completion.by(completion.replicas, option)


def chosen(names: Sequence[str], job: Job) -> list[Replica]:
    """The replicas that ``--replica`` names; all where it is not given.

    Raises:
        UsageError: The job has no such role or replica.
    """
    for name in names:
        if not any(one.chosen([name]) for one in job.replicas):
            known = ", ".join(map(str, job.replicas))
            raise UsageError(f"{job.name} has no replica {name}.", f"There are: {known}.")
    return [one for one in job.replicas if one.chosen(names)]


def add_since(verb: argparse.ArgumentParser) -> None:
    """Give a verb ``--since``; :func:`moment` reads it."""
    verb.add_argument(
        "--since",
        default="",
        metavar="TIME",
        help="leave out older lines: 10m, 2h, or a moment such as 2026-01-31T18:00:00Z",
    )


def moment(text: str) -> float:
    """Seconds since the epoch of a ``--since``; 0 where there is none.

    Raises:
        UsageError: It is no time.
    """
    if not text:
        return 0.0
    try:
        return time.time() - Duration().parse(text)
    except ValueError:
        pass
    try:
        # Without an offset it is the user's own clock that is meant.
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since cannot be {text!r}.",
            "Write a time span such as 90s, 10m or 2h30m, or a moment as 2026-01-31T18:00:00Z.",
        ) from None
