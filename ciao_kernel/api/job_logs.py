"""The logs of a job's replicas, as Python code reads them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ciao_kernel.api.client import Client
from ciao_kernel.errors import BackendError
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.queries import WHOLE_LOG, LogOptions
from ciao_kernel.session.session import Session
from ciao_kernel.session.warm import logs as warm_logs

_T = TypeVar("_T")

_AT_ONCE = 16
"""Number of logs that are requested at a time."""
_USER = 3
"""Level of the user's line for a warning here: the user called the function that called this."""


def read(
    client: Client,
    job: Job,
    replicas: Sequence[Replica],
    options: LogOptions,
    level: int = _USER,
) -> list[bytes]:
    """Return the logs of some replicas; a replica that has none is empty.

    A log that cannot be read is empty too, with a warning. A log that may be older than asked for
    is a warning too.

    Args:
        client: Asks the backend of the job.
        job: The job, or a run in replicas that ``%warm`` keeps.
        replicas: Some of its replicas.
        options: The part of each log.
        level: Level of the line that the warnings name, counted from this function.

    Raises:
        BackendError: No log can be read.
    """
    notices: dict[str, None] = {}
    asked = replace(options, tell=notices.setdefault)
    logs = client.run(lambda session: _ask(session, job, replicas, asked))
    for notice in notices:
        warnings.warn(notice, stacklevel=level)
    return logs


def converted(client: Client, job: Job, convert: Callable[[bytes], _T]) -> dict[str, _T]:
    """Return the whole log of each replica in another form, by the replica's name.

    A log that cannot be read is left out, with a warning.

    Args:
        client: Asks the backend of the job.
        job: The job, or a run in replicas that ``%warm`` keeps.
        convert: Returns that form of a log.

    Raises:
        BackendError: No log can be read.
    """
    done: dict[str, _T] = {}
    faults: list[BackendError] = []
    for one in job.replicas:
        try:  # one log at a time: each may have gigabytes
            done[str(one)] = convert(read(client, job, [one], WHOLE_LOG, _USER + 1)[0])
        except BackendError as error:
            faults.append(error)
    if faults and not done:
        raise faults[0]
    for fault in faults:
        warnings.warn(fault.message, stacklevel=_USER)
    return done


async def _ask(
    session: Session, job: Job, replicas: Sequence[Replica], options: LogOptions
) -> list[bytes]:
    """Return some logs; one that cannot be read is empty, unless none can be."""
    backend = session.backend(job.backend)
    found: list[bytes | BaseException] = []
    for start in range(0, len(replicas), _AT_ONCE):
        some = replicas[start : start + _AT_ONCE]
        run = job.warm_run or None
        asked = (warm_logs.read(backend, job, one, options, run) for one in some)
        found += await asyncio.gather(*asked, return_exceptions=True)
    faults = [one for one in found if isinstance(one, BaseException)]
    others = [one for one in faults if not isinstance(one, BackendError)]
    if others or (faults and len(faults) == len(found)):
        raise (others or faults)[0]
    for fault in faults:
        options.tell(str(fault))
    return [b"" if isinstance(one, BaseException) else one for one in found]
