"""The newest run of a warm job whose replicas wait, for somebody who finds it when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ciao_kernel.config import Settings
from ciao_kernel.delivery.inspection import breakpoints
from ciao_kernel.delivery.warm import marks
from ciao_kernel.delivery.warm.marks import MarkReader
from ciao_kernel.errors import CiaoError
from ciao_kernel.model import Event, Job, Notice, Output, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import WHOLE_LOG, Where, count_lines
from ciao_kernel.plugins import Backend, Feeding
from ciao_kernel.session import planning
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.warm import found_runs, framework
from ciao_kernel.session.warm.logged_files import LoggedFiles
from ciao_kernel.session.warm.logs import keep_values


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that is over, as the logs of its replicas tell it."""

    job: Job
    """The run."""
    status: Status
    _of: Job
    _backend: Backend
    _logs: Mapping[Replica, bytes]
    _marks: Mapping[Replica, list[dict[str, Any]]]
    """The markers in each log."""

    async def events(self) -> AsyncIterator[Event]:
        """Yield its lines, what is said of files that come, and its status."""
        number, files = self.job.warm_run, LoggedFiles(self._of, self._backend)
        text = f"{self._of.name} waits for its next run; this is run {number}, which is over"
        yield Notice(f"{text} (`%ciao logs {self._of.name}` shows all runs)")
        for replica, data in self._logs.items():
            if found := await asyncio.to_thread(_shown, data, number):
                yield Output(replica, found, count_lines(found))
            for mark in self._marks[replica]:  # the files that are not here
                keep_values(self._of, replica, mark)
                for said in await files.take(replica, mark):
                    yield said
        yield self.status


async def find(
    backend: Backend,
    job: Job,
    registry: Registry,
    settings: Settings,
    *,
    result_only: bool = False,
) -> EndedRun | None:
    """Return the newest run of a warm job; None if it is active, or its end is not known.

    Args:
        backend: The job's backend.
        job: The job; one that is not warm has no runs.
        registry: Finds its framework, which says who decides about a run.
        settings: The default framework.
        result_only: Read only the ends of the logs, also of a job that is over: they tell its
            status, but not all of its lines.

    Raises:
        BackendError: The job or a log is gone.
    """
    if not job.replicas or not (result_only or await found_runs.is_idle(backend, job)):
        return None
    _, now = await backend.find(job.name, Where.of(job))
    if now.state.over and not result_only:
        return None
    options = found_runs.ENDS if result_only else WHOLE_LOG
    data = await asyncio.gather(*(backend.log(job, one, options) for one in job.replicas))
    logs = dict(zip(job.replicas, data, strict=True))
    newest = (await asyncio.to_thread(found_runs.of_log, job, data[0])).run()
    if not newest.warm_run:
        return None
    told = await asyncio.to_thread(lambda: {one: _marks(log) for one, log in logs.items()})
    ends = _ends(told, newest.warm_run)
    if len(ends) < len(logs):
        return None
    try:
        spec = planning.parse_cell(f"{job.header}\npass\n", registry, settings).spec
        own = registry.framework(spec.framework)
    except CiaoError:  # of another version of ciao
        return None
    here = isinstance(backend, Feeding) and backend.keeps_runs
    decider, endless = framework.deciders(own, spec, here=here)
    return EndedRun(newest, _status(now, ends, decider, endless), job, backend, logs, told)


def _shown(data: bytes, number: int) -> bytes:
    return breakpoints.without(marks.lines(data, number))


def _marks(data: bytes) -> list[dict[str, Any]]:
    return [part for part in MarkReader().read(data) if isinstance(part, dict)]


def _ends(
    told: Mapping[Replica, list[dict[str, Any]]], number: int
) -> dict[Replica, dict[str, Any]]:
    """Return the marker of a run's end in each replica that has also given its files."""
    found, given = dict[Replica, dict[str, Any]](), set[Replica]()
    for replica, marks_of_one in told.items():
        for mark in marks_of_one:
            if mark.get("id") != number:
                continue
            if mark.get("ev") == "end" and isinstance(mark.get("code"), int):
                found[replica] = mark
            elif mark.get("ev") == "given":
                given.add(replica)
    return {one: mark for one, mark in found.items() if one in given or not mark.get("gives")}


def _status(
    job: Status,
    ends: Mapping[Replica, Mapping[str, Any]],
    decider: Replica | None,
    endless: Collection[str],
) -> Status:
    """Return the status of a run; what came first decides, as in :class:`.run.Run`.

    Args:
        job: The status of its job, which knows the logs and the nodes of the replicas.
        ends: The marker of its end in each replica.
        decider: The replica that decides; None: all of them do.
        endless: Roles that never end by themselves.
    """
    own = {replica: _state(mark) for replica, mark in ends.items()}
    replicas = tuple(_ended(one, own, ends) for one in job.replicas if one.replica in ends)
    failed = [one for one in ends if own[one] is State.FAILED]
    well = decider is not None and own.get(decider) is State.SUCCEEDED
    took = {one: float(mark.get("took") or 0) for one, mark in ends.items()}
    if well and decider is not None:  # a later failure is that of a peer which lost it
        failed = [one for one in failed if took[one] < took[decider]]
    if failed:  # the first one is the cause
        first = min(failed, key=lambda one: took[one])
        why = str(ends[first].get("why") or "")
        late = why == "deadline"
        return Status(
            State.FAILED,
            replicas,
            reason="DeadlineExceeded" if late else "ReplicaFailed",
            message="the run took longer than its deadline." if late else why,
            settled=True,
            decided_by=first,
        )
    finite = [state for one, state in own.items() if one.role not in endless]
    if well or (decider is None and finite and set(finite) == {State.SUCCEEDED}):
        return Status(State.SUCCEEDED, replicas, settled=True)
    return Status(State.STOPPED, replicas, settled=True)


def _state(mark: Mapping[str, Any]) -> State:
    why = mark.get("why")
    if why in ("stopped", "terminated"):
        return State.STOPPED
    return State.FAILED if mark["code"] or why else State.SUCCEEDED


def _ended(
    one: ReplicaStatus,
    states: Mapping[Replica, State],
    ends: Mapping[Replica, Mapping[str, Any]],
) -> ReplicaStatus:
    mark, state = ends[one.replica], states[one.replica]
    reason = ""
    if state is State.FAILED:
        reason = "OOMKilled" if mark.get("oom") else ""
        reason = "DeadlineExceeded" if mark.get("why") == "deadline" else reason
    return replace(one, state=state, exit_code=mark["code"], reason=reason)
