"""The process that runs one local job: starts the replicas, judges how they end, cleans up.

It has a session of its own, so that it survives the kernel's end and a closed terminal. It watches
the process that owns the job: when the owner is gone, it ends the replicas. Its own parent is a
guard (:mod:`.guard`), which ends them if the supervisor is killed. :mod:`.supervisor_start`
starts it as ``python -c`` with the job's folder as argument, while the job is still prepared. When
it is told to begin, it reads ``job.json``, and then writes ``status.json``.
SIGTERM asks it to stop the job, and so does the file ``stop``, because a process on another machine
cannot send a signal.

It is written for a quick start, because a cell's first line waits for it: standard library, no
asyncio, no dataclasses.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from pathlib import Path

from ciao_kernel.backends.local import parentage, processes
from ciao_kernel.backends.local.guard import fork_under_guard
from ciao_kernel.backends.local.record import BEGIN, Folder
from ciao_kernel.backends.local.replica import ReplicaProcess
from ciao_kernel.backends.local.restarts import Restarts
from ciao_kernel.backends.local.retries import Retries, is_kill, is_sigkill
from ciao_kernel.backends.local.status_writer import StatusWriter

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from typing import Any

    from ciao_kernel.backends.local.machine.private_network import Network

_OWNER_POLL = 0.25
_ORPHAN_GRACE = 1.0
"""Seconds from SIGTERM to SIGKILL after the owner is gone, without ``%grace``: no user waits."""


class Supervisor:
    """Runs one job to its end.

    Args:
        folder: The job's folder; its ``job.json`` is complete.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.job = folder.hold()
        self.replicas = [ReplicaProcess(record) for record in self.job["replicas"]]
        self.restarts = Restarts.of(self.job)
        self.retries = Retries.of(self.job)
        self.state = "Running"
        self.since = time.time()
        self.reason = ""
        self.message = ""
        self.decided_by: str | None = None
        self.settled = False
        self.ended = False
        self.asked_to_stop = False
        self._writer = StatusWriter(folder, self._status)
        self._linger_until = 0.0
        self._kill_at = 0.0
        self._stopping = False

    def run(self) -> None:
        """Start all replicas and wait until no process of the job runs any more."""
        wake = self._catch_signals()
        network = self._create_network()
        for replica in self.replicas:
            self._start(replica, network)
        if network and not self.restarts.possible and not self.retries.limit:
            network.close()
        self._writer.write()
        deadline = self.job["deadline"]
        ends_at = time.monotonic() + deadline if deadline else None
        while self.restarts.next_at or any(replica.running for replica in self.replicas):
            readable, _, _ = select.select([wake], [], [], self._pause(ends_at))
            if readable:
                os.read(wake, 4096)
            self._reap()
            if self.folder.is_stop_requested():
                # Only ever set to True here: a signal may set it at any moment.
                self.asked_to_stop = True
            now = time.monotonic()
            if self.asked_to_stop and self.state == "Running":
                self._conclude("Stopped", "StoppedByUser", self.folder.read_stop_reason())
            elif ends_at and now >= ends_at and self.state == "Running":
                self._conclude_late(f"the job ran longer than its deadline of {deadline} s.")
            elif self._owner_gone():
                self._conclude("Stopped", "OwnerGone", "the process that started it ended")
                saves = self.job.get("saves", False)
                self._stop(self.job["grace"] if saves else min(_ORPHAN_GRACE, self.job["grace"]))
            self._restart(network, now)
            self._try_again(network, now)
            self._advance(now)
            self._writer.write()
            self._writer.beat(now)
        if self.state == "Running":
            # Asked to stop before the first replica was started.
            self._conclude("Stopped", "StoppedByUser", self.folder.read_stop_reason())
        self.end_all()
        self.settled = self.ended = True
        self._writer.changed = True
        self._writer.write(patience=60.0)

    def end_all(self) -> None:
        """Kill all remaining processes of the job, and wait: they could still write a line."""
        # The guard has the mark too, and ends by itself.
        processes.sweep(self.job["id"], spare=(os.getppid(),))

    # --------------------------------------------------------------------------- replicas

    def _create_network(self) -> Network | None:
        if not self.job.get("isolated"):
            return None
        from ciao_kernel.backends.local.machine import private_network

        return private_network.create()

    def _start(self, replica: ReplicaProcess, network: Network | None) -> None:
        if self.state != "Running" or self.asked_to_stop:
            replica.to("Stopped")
            return
        self.restarts.started(replica.name, time.monotonic())
        try:
            replica.start(self.job, self.folder, network)
        except OSError as error:
            replica.exit_code = 127
            replica.to("Failed", "StartError")
            text = f"{replica.name} cannot be started: {_reason(error)}"
            self._conclude("Failed", "StartError", text, replica.name)

    def _reap(self) -> None:
        ended = [replica for replica in self.replicas if replica.ended()]
        self._plan_try(ended)
        for replica in ended:
            self._writer.changed = True
            if self._stopping or self.retries.why:
                replica.to("Stopped")
            elif self._plan_restart(replica):
                continue
            elif replica.exit_code == 0:
                replica.to("Succeeded")
            else:
                replica.to("Failed")  # its exit code says why
        parentage.reap_adopted([one.pid for one in self.replicas if one.running])
        if self.state != "Running" or self.retries.why:
            return
        failed = self._first_failed()
        decider = next((r for r in self.replicas if r.name == self.job["decider"]), None)
        if failed is not None and self._may_belong_to_a_loss():
            self.restarts.drop()
            self._stop(self.job["grace"])
        elif failed is not None:
            self._conclude("Failed", "ReplicaFailed", "", failed.name)
        elif decider is not None and decider.state == "Succeeded":
            self._conclude("Succeeded", "", "", decider.name)
            self._linger_until = time.monotonic() + self.job["linger"]
        elif not self.job["decider"]:  # all of them decide
            finite = [one for one in self.replicas if not one.endless]
            if finite and all(one.state == "Succeeded" for one in finite):
                self._conclude("Succeeded", "", "")

    def _may_belong_to_a_loss(self) -> bool:
        """Return whether a failure is not concluded yet: the loss behind it may be seen later.

        torchrun first ends the other processes of a replica in which one was killed. The peers of
        that replica lose their connections meanwhile, and may fail before it ends. A program that
        kills itself when it is told to end cannot be told from that. With ``%cleanPolicy=none``
        nobody ends the others, so nothing is waited for.
        """
        if not self.retries.left or self.job["clean"] == "none":
            return False
        in_time = not self._stopping or time.monotonic() < self._kill_at
        return in_time and any(replica.running for replica in self.replicas)

    def _conclude_late(self, text: str) -> None:
        """Conclude a job whose deadline is over; an open failure came before that, and counts."""
        failed = self._first_failed()
        if failed is not None:
            self._conclude("Failed", "ReplicaFailed", "", failed.name)
        else:
            self._conclude("Failed", "DeadlineExceeded", text)

    def _first_failed(self) -> ReplicaProcess | None:
        return next((one for one in self.replicas if one.state == "Failed"), None)

    def _plan_try(self, ended: list[ReplicaProcess]) -> None:
        """Begin to end all replicas if one was killed from outside and the job has a try left."""
        if self.state != "Running" or self.asked_to_stop or not self.retries.left:
            return
        codes = {one.name: one.exit_code or 0 for one in ended}
        if codes.get(self.job["decider"]) == 0:
            return
        # Those of a failed job have got SIGTERM from here, and no SIGKILL yet.
        counts = is_sigkill if self._stopping else is_kill
        for name, code in codes.items():
            if counts(code) and not self.restarts.wants(code):
                self._stop(self.job["grace"])
                self._stopping = False
                self.retries.plan(name, code, self._kill_at)
                self.restarts.drop()
                return

    def _try_again(self, network: Network | None, now: float) -> None:
        """Start all replicas again once those of the last try have ended."""
        if self.state != "Running":
            self.retries.drop()
        if not self.retries.why:
            return
        if any(replica.running for replica in self.replicas):
            if now >= self.retries.kill_at:
                self._signal(signal.SIGKILL)
                self.retries.kill_at = now + 1.0
            return
        self.end_all()
        text = self.retries.begin()
        for replica in self.replicas:
            replica.wait_for_restart(self.folder)
            self.folder.add_line(replica.name, text)
        for replica in self.replicas:
            self._start(replica, network)
        self._writer.changed = True

    def _plan_restart(self, replica: ReplicaProcess) -> bool:
        """Return whether a replica that has ended is started again."""
        code, now = replica.exit_code or 0, time.monotonic()
        if self.state != "Running" or self.asked_to_stop or not self.restarts.wants(code):
            return False
        if self.restarts.is_used_up():
            text = "" if code else f"{replica.name} ended again, and %backoffLimit is reached."
            self._conclude("Failed", "BackoffLimitExceeded", text, replica.name)
            return False
        # In a pod they would end with the container; here they would disturb the next run.
        processes.sweep_replica(self.job["id"], replica.name)
        replica.wait_for_restart(self.folder)
        self.restarts.add(replica.name, now)
        return True

    def _restart(self, network: Network | None, now: float) -> None:
        """Start the replicas whose time has come; after the job's end none is started."""
        for replica in self.replicas:
            if self.state != "Running" and replica.waits:
                replica.to("Stopped")
                self._writer.changed = True
        if self.state != "Running":
            self.restarts.drop()
        due = self.restarts.take_due(now)
        for replica in self.replicas:
            if replica.name in due:
                self._start(replica, network)
                self._writer.changed = True

    def _conclude(self, state: str, reason: str, message: str, by: str | None = None) -> None:
        if self.state != "Running":
            return
        self.state, self.reason, self.message, self.decided_by = state, reason, message, by
        self.since = time.time()
        self._writer.changed = True

    # --------------------------------------------------------------------------- stopping

    def _advance(self, now: float) -> None:
        """End the remaining replicas of a job whose outcome is decided."""
        if self.state == "Running":
            return
        if self._stopping:
            if now >= self._kill_at:
                self._signal(signal.SIGKILL)
                self._kill_at = now + 1.0
            return
        keep = self.job["clean"] == "none" and self.state != "Stopped"
        if keep and not self.asked_to_stop:
            self._writer.changed = self._writer.changed or not self.settled
            self.settled = True
            return
        waiting = [r for r in self.replicas if r.running and not r.endless]
        if self.state == "Succeeded" and waiting and now < self._linger_until:
            return
        self._stop(self.job["grace"])

    def _stop(self, grace: float) -> None:
        if not self._stopping:
            self._stopping = True
            self._kill_at = time.monotonic() + grace
            self._signal(signal.SIGTERM)
        self._kill_at = min(self._kill_at, time.monotonic() + grace)

    def _signal(self, number: signal.Signals) -> None:
        for replica in self.replicas:
            replica.signal(number)
        if number == signal.SIGKILL:
            # torchrun starts each process in its own session, so the process group is not enough.
            processes.kill_marked(self.job["id"], spare=(os.getppid(),))

    def _owner_gone(self) -> bool:
        owner = self.job["owner"]
        return owner is not None and not processes.alive(owner["pid"], owner["birth"])

    # -------------------------------------------------------------------------------- loop

    def _catch_signals(self) -> int:
        """Make signals wake the loop; return the descriptor to wait on."""
        wake, writer = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def stop(*_: object) -> None:
            self.asked_to_stop = True

        signal.signal(signal.SIGTERM, stop)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
            # Not SIG_IGN: the replicas would inherit it, and get no KeyboardInterrupt.
            signal.signal(number, lambda *_: None)
        return wake

    def _pause(self, ends_at: float | None) -> float:
        """Return the seconds until the next check if no signal arrives."""
        now = time.monotonic()
        times = [now + (_OWNER_POLL if self.job["owner"] else 5.0)]
        if self._stopping:
            times.append(self._kill_at)
        if self.state == "Running":
            times += [at for at in (ends_at, self.restarts.next_at) if at]
            times += [self.retries.kill_at] if self.retries.why else []
        elif not self._stopping and not self.settled:
            times.append(self._linger_until)
        if self._writer.changed:
            times.append(now + 0.5)
        return max(0.01, min(times) - now)

    def _status(self) -> dict[str, Any]:
        return {
            "supervisor": {
                "pid": os.getpid(),
                "birth": processes.birth(os.getpid()),
                "host": self.job.get("host", ""),
            },
            "state": self.state,
            "since": self.since,
            "reason": self.reason,
            "message": self.message,
            "decided_by": self.decided_by,
            "tries": self.retries.tries,
            "settled": self.settled,
            "ended": self.ended,
            "replicas": [replica.record() for replica in self.replicas],
        }


def _reason(error: OSError) -> str:
    """Return why a replica cannot be started; for a limit, also the remedy."""
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        from ciao_kernel import exhaustion  # what it imports would slow each start down

        if fault := exhaustion.fault_of(error, of_processes=True):
            return f"{fault.message} {fault.hint}"
    place = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{place}."


def main(submitter: int, birth: str) -> None:
    """Run the job whose folder is the program's argument, once its record is complete.

    Args:
        submitter: ID of the process that submits it.
        birth: When that was started (:func:`.processes.birth`).
    """
    fork_under_guard()
    if not _may_begin(submitter, birth):
        return
    supervisor = Supervisor(Folder(Path(sys.argv[1])))
    try:
        supervisor.run()
    except BaseException:
        # After any failure the replicas would be unwatched. Python writes the error to the log.
        supervisor.end_all()
        raise


def _may_begin(submitter: int, birth: str) -> bool:
    """Wait until the record is complete; return False if the submission is over without it."""
    while not select.select([0], [], [], _OWNER_POLL)[0]:
        # A forked process of a killed kernel may have a copy of the pipe's other end.
        if not processes.alive(submitter, birth):
            return False
    return os.read(0, len(BEGIN)) == BEGIN
