"""Converts the records of a job's folder into the model's values.

Separate from :mod:`.record`, because the supervisor imports that module and avoids dataclasses.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ciao_kernel.backends.local import hosts
from ciao_kernel.backends.local.record import Folder
from ciao_kernel.magics import stored_fields
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.queries import Details, Group
from ciao_kernel.model.status import SILENT

BACKEND = "local"


def job(folder: Folder) -> Job:
    """Return the job of a folder; raises OSError, ValueError or KeyError if there is none."""
    record = folder.read_job()
    return Job(
        name=record["name"],
        backend=BACKEND,
        framework=record["framework"],
        replicas=tuple(Replica(one["role"], one["index"]) for one in record["replicas"]),
        created=record["created"],
        place=record["workdir"],
        program=record["program"],
        root=record["workdir"],
        **stored_fields.job_fields(record["header"]),
        owner=record["by"],
        detached=record["detached"],
        made_of=tuple((name, str(text)) for name, text in record.get("made_of", {}).items()),
        uid=record["id"],
    )


def status(folder: Folder, record: Mapping[str, Any]) -> Status:
    """Return the status in a record."""
    replicas = tuple(
        ReplicaStatus(
            replica=_replica(one["name"]),
            state=State(one["state"]),
            since=one["since"],
            exit_code=one["exit_code"],
            reason=one["reason"],
            log=str(folder.log(one["name"])),
            # Records of earlier releases lack both.
            restarts=one.get("restarts", 0),
            last_exit=one.get("last_exit"),
        )
        for one in record["replicas"]
    )
    return Status(
        state=State(record["state"]),
        replicas=replicas,
        since=record["since"],
        reason=record["reason"],
        message=record["message"],
        settled=record["settled"],
        decided_by=_replica(record["decided_by"]) if record["decided_by"] else None,
        tries=record.get("tries", 1),
    )


def details(folder: Folder, host: hosts.Host) -> Details:
    """Return the details of a job beside its status; raises the same errors as :func:`job`."""
    asked, now = folder.read_job(), folder.read_status()
    owner, supervisor = asked["owner"], ""
    if now is not None and host.is_supervisor_alive(folder, now):
        supervisor = f"process {now['supervisor']['pid']}"
        if not host.has(now["supervisor"]):
            supervisor += f" on {hosts.name(now['supervisor'])}"
    commands = dict.fromkeys(shlex.join(one["command"]) for one in asked["replicas"])
    rows = {
        "command": "; ".join(commands),
        "clean policy": asked["clean"],
        "deadline": f"{asked['deadline']} s" if asked["deadline"] else "",
        # Of a job that has ended the number may be that of another process by now.
        "ends with": f"process {owner['pid']}" if owner and supervisor else "",
        "supervisor": supervisor,
    }
    counts = Counter(one["role"] for one in asked["replicas"])
    return Details(
        facts=tuple((name, str(value)) for name, value in rows.items() if value),
        groups=tuple(Group(role, count) for role, count in counts.items()),
    )


def lost(folder: Folder, known: Status, *, silent: bool) -> Status:
    """Return the status of a job whose supervisor died before it settled the job.

    Args:
        folder: The job's folder.
        known: Its last status.
        silent: It is on another machine, which may also sleep or have lost its network.
    """
    seen = folder.last_heartbeat()  # the status itself tells only when its states began
    ended = replace(
        known,
        settled=True,
        replicas=tuple(
            one if one.state.over else replace(one, state=State.LOST, since=max(one.since, seen))
            for one in known.replicas
        ),
    )
    if known.state.over:
        return ended
    reason = SILENT if silent else known.reason
    return replace(ended, state=State.LOST, since=max(known.since, seen), reason=reason)


def _replica(name: str) -> Replica:
    role, _, index = name.rpartition("-")
    return Replica(role, int(index))
