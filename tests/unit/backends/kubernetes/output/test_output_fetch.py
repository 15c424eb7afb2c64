"""When files are fetched from the pods of a job, and when the pods are released."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.output.output_fetch import OutputFetch
from ciao_kernel.backends.kubernetes.states import status
from ciao_kernel.config import Settings
from ciao_kernel.delivery.incoming_files import Listing
from ciao_kernel.delivery.output.result_writer import MARK
from ciao_kernel.errors import ClusterFault
from ciao_kernel.model import Job, Notice, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import SentFiles

FIRST, SECOND, PS = Replica("worker", 0), Replica("worker", 1), Replica("ps", 0)
ITEM: dict[str, Any] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {
        "annotations": {"ciao-kernel/decider": "worker-0", "ciao-kernel/endless": "ps"},
    },
    "spec": {"tfReplicaSpecs": {"Worker": {"restartPolicy": "Never"}}},
}


class FakeFetch:
    """A fetch whose files arrive when the test says so."""

    made: list[FakeFetch] = []  # noqa: RUF012

    def __init__(self, *given: Any, waits: bool, **more: Any) -> None:
        self.waits, self.words = waits, given[2]
        self.arrived, self.released = asyncio.Event(), asyncio.Event()
        self.listing, self.fault = Listing(files=3), asyncio.Event()
        self.whole, self.current, self.cut = 0, "", more["on_cut"]
        self.patience, self.sign_out = more["patience"], more["on_signed_out"]
        self.made.append(self)

    def release(self) -> None:
        self.released.set()

    async def hold(self) -> None:
        self.made.remove(self)  # it fetches nothing
        await asyncio.Event().wait()

    async def run(self) -> None:
        ends = [asyncio.ensure_future(one.wait()) for one in (self.arrived, self.fault)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ends:
                one.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            await asyncio.sleep(0)  # it closes a connection
        if self.fault.is_set():
            raise ClusterFault("the connection was cut.")
        if self.waits:
            await self.released.wait()


@pytest.fixture
def made() -> list[FakeFetch]:
    FakeFetch.made = []
    return FakeFetch.made


def pod(replica: Replica, *, ended: bool, restarts: int = 0, message: str = "") -> dict[str, Any]:
    end = {"exitCode": 0, "message": message}
    state: dict[str, Any] = {"terminated": end} if ended else {"running": {}}
    return {
        "metadata": {"name": f"job-{replica}", "uid": str(replica)},
        "spec": {"containers": [{"name": "tensorflow"}], "restartPolicy": "Never"},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "tensorflow", "state": state, "restartCount": restarts}],
            "initContainerStatuses": [{"name": "ciao-output", "state": {"running": {}}}],
        },
    }


def follow(
    tmp_path: Path,
    work: Callable[[OutputFetch, Callable[..., Awaitable[None]]], Awaitable[None]],
    header: str = "%output=model/\n",
) -> None:
    async def main() -> None:
        job = Job("job", "kubernetes", "tensorflow", (FIRST, SECOND, PS), 1.0, header=header)
        settings = Settings(linger=0.0)
        make: Any = FakeFetch
        none: Any = None
        fetch = OutputFetch(none, job, tmp_path, settings, lambda: None, make)

        async def update(restarts: int = 0, **ends: bool) -> None:
            given = {Replica(name[:-1], int(name[-1])): ended for name, ended in ends.items()}
            pods = {one: pod(one, ended=ended, restarts=restarts) for one, ended in given.items()}
            states = {True: State.SUCCEEDED, False: State.RUNNING}
            replicas = tuple(ReplicaStatus(one, states[ended]) for one, ended in given.items())
            fetch.update(ITEM, Status(State.RUNNING, replicas), pods)
            for _ in range(20):
                await asyncio.sleep(0)

        try:
            await work(fetch, update)
        finally:
            await fetch.close()

    asyncio.run(main())


def test_a_worker_that_does_not_decide_is_released_at_once(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=False, worker1=True, ps0=False)
        (one,) = made
        assert one.waits
        assert fetch.busy
        one.arrived.set()
        await update(worker0=False, worker1=True, ps0=False)
        await update(worker0=False, worker1=True, ps0=False)
        assert one.released.is_set()
        assert not fetch.busy

    follow(tmp_path, work)


def test_the_replica_that_ends_the_job_is_released_after_files_of_all_others(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        ends = {"worker0": True, "worker1": False, "ps0": False}
        await update(**ends)
        (first,) = made
        first.arrived.set()
        await asyncio.sleep(0.6)  # the others may end by themselves
        await update(**ends)
        await update(**ends)
        assert [one.waits for one in made] == [True, False, False]
        assert not first.released.is_set()
        assert fetch.busy
        for one in made:
            one.arrived.set()
        await update(**ends)
        await update(**ends)
        assert first.released.is_set()
        assert not fetch.busy

    follow(tmp_path, work)


@pytest.mark.parametrize("job_gone", [False, True])
def test_a_pod_that_is_deleted_while_its_files_come_is_released_with_the_last_of_them(
    tmp_path: Path, made: list[FakeFetch], job_gone: bool
) -> None:
    """Otherwise the open connection keeps it, and a drain of its node waits."""

    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True, worker1=False)
        deleted = pod(FIRST, ended=True)
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        pods = {FIRST: deleted, SECOND: pod(SECOND, ended=False)}
        now = Status(State.RUNNING, (ReplicaStatus(FIRST, State.SUCCEEDED),))

        async def look() -> None:
            for _ in range(20):
                await asyncio.sleep(0)
            if job_gone:
                fetch.job_is_gone(pods)
            else:
                fetch.update(ITEM, now, pods)

        await look()
        assert not made[0].released.is_set()
        made[0].arrived.set()
        await look()
        assert made[0].released.is_set()

    follow(tmp_path, work)


@pytest.mark.parametrize("together", [False, True])
def test_where_all_workers_decide_the_last_one_waits_for_files_of_parameter_servers(
    tmp_path: Path, made: list[FakeFetch], together: bool
) -> None:
    spec = {**ITEM["spec"], "successPolicy": "AllWorkers"}
    item = {**ITEM, "spec": spec}

    def gone(replica: Replica) -> dict[str, Any]:
        found = pod(replica, ended=True)
        found["status"]["initContainerStatuses"][0]["state"] = {"terminated": {}}
        return found

    async def work(fetch: OutputFetch, _: Any) -> None:
        async def look(first: dict[str, Any], *, second_ended: bool) -> None:
            second = pod(SECOND, ended=second_ended)
            pods = {FIRST: first, SECOND: second, PS: pod(PS, ended=False)}
            replicas = tuple(status.of_pod(one, replica) for replica, one in pods.items())
            fetch.update(item, Status(State.RUNNING, replicas), pods)
            for _ in range(20):
                await asyncio.sleep(0)

        first = pod(FIRST, ended=True)
        await look(first, second_ended=together)
        for one in made:
            one.arrived.set()
        if not together:
            await look(first, second_ended=False)
            await look(first, second_ended=False)
            assert made[0].released.is_set()
            first = gone(FIRST)
        await look(first, second_ended=True)
        await asyncio.sleep(0.6)  # the parameter server may end by itself
        await look(first, second_ended=True)
        made[1].arrived.set()
        await look(first, second_ended=True)
        assert [one.waits for one in made] == [True, True, False]
        assert not made[1].released.is_set()
        made[2].arrived.set()
        for _ in range(2):
            await look(first, second_ended=True)
        assert made[1].released.is_set()

    follow(tmp_path, work)


def test_each_start_of_a_program_has_a_fetch_of_its_own(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker1=True)
        made[0].arrived.set()
        await update(worker1=True)
        await update(restarts=1, worker1=True)
        assert [one.arrived.is_set() for one in made] == [True, False]
        assert fetch.busy

    follow(tmp_path, work)


def test_a_fetch_that_fails_is_said_and_does_not_stop_the_job(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True)
        made[0].fault.set()
        await update(worker0=True)
        await update(worker0=True)
        assert not fetch.busy
        assert not fetch.fetching
        (said,) = fetch.events()
        assert said == Notice("the files of worker-0 did not come back: the connection was cut.")

    follow(tmp_path, work)


def test_nothing_is_said_of_a_fetch_from_a_program_that_ends_meanwhile_and_is_held(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True, worker1=False)
        await asyncio.sleep(0.6)  # it may end by itself
        await update(worker0=True, worker1=False)
        running = made[1]
        running.cut("container not found.")
        running.fault.set()
        await update(worker0=True, worker1=False)
        assert not list(fetch.events())
        await update(worker0=True, worker1=True)
        assert [one.waits for one in made] == [True, False, True]
        for one in made:
            one.arrived.set()
        for _ in range(2):
            await update(worker0=True, worker1=True)
        assert not list(fetch.last_events())
        assert not fetch.busy

    follow(tmp_path, work)


def test_a_lost_fetch_from_a_program_that_runs_is_said_when_its_pod_has_gone(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True, ps0=False)
        await asyncio.sleep(0.6)
        await update(worker0=True, ps0=False)
        made[1].fault.set()
        await update(worker0=True, ps0=False)
        assert not list(fetch.events())
        await update(worker0=True)
        (said,) = fetch.events()
        assert said == Notice("the files of ps-0 did not come back: the connection was cut.")
        assert not list(fetch.last_events())

    follow(tmp_path, work)


def test_cut_connections_and_files_that_are_here_already_are_said(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True)
        (one,) = made
        one.whole, one.current = 1, "model/net\u202e.pt"
        one.cut("the connection was cut.")
        one.fault.set()
        await update(worker0=True)
        assert list(fetch.events()) == [
            Notice(
                "fetching the files of worker-0 was cut (the connection was cut); it goes on with "
                "model/net\\u202e.pt …"
            ),
            Notice(
                "the other files of worker-0 did not come back: the connection was cut. 1 of 3 "
                "files is here."
            ),
        ]

    follow(tmp_path, work)


def test_files_wait_for_accepted_credentials_as_long_as_the_cell_and_say_so_once(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    why = "the cluster of context test does not accept these credentials: Unauthorized"
    said = Notice(
        f"files of %output wait: {why}. If you have to sign in, do it now: they come once the "
        "credentials are accepted …"
    )

    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker1=True, ps0=True)
        assert [one.patience for one in made] == [Settings().follow_patience] * 2
        for one in made:
            one.sign_out(f"{why}.")
        assert list(fetch.events()) == [said]
        made[0].arrived.set()
        await update(worker1=True, ps0=True)
        made[1].sign_out(f"{why}.")
        assert list(fetch.events()) == [said]

    follow(tmp_path, work)


def test_jobs_without_files_are_left_alone(tmp_path: Path, made: list[FakeFetch]) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True)
        assert not made
        assert not fetch.busy

    follow(tmp_path, work, "%output=metrics\n")


def test_of_values_alone_only_those_that_are_files_are_fetched(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    """Other pods end by themselves: nobody reads from a container that is just ending."""
    entry = {"type": "builtins.str", "file": "text.json", "size": 5002}

    def message(**more: str) -> str:
        return MARK + json.dumps({"names": ["text"], "values": {"text": {**entry, **more}}})

    async def work(fetch: OutputFetch, _: Any) -> None:
        now = Status(State.RUNNING, ())
        for text in ("", "Traceback", message(), message(data="IiI=")):
            pods = {one: pod(one, ended=True, message=text) for one in (FIRST, SECOND)}
            fetch.update(ITEM, now, pods)
            assert not fetch.busy
            assert not made
        pods = {
            FIRST: pod(FIRST, ended=True, message=message(digest="ab")),
            SECOND: pod(SECOND, ended=True),
            PS: pod(PS, ended=False),
        }
        for _ in range(20):
            fetch.update(ITEM, now, pods)
            await asyncio.sleep(0)
        (one,) = made
        assert one.words == (".ciao-values/",)
        assert fetch.busy
        one.arrived.set()
        for _ in range(20):
            await asyncio.sleep(0)
            fetch.update(ITEM, now, pods)
        assert one.released.is_set()
        assert not fetch.busy

    follow(tmp_path, work, "%output=text\n")


def test_event_files_are_fetched_with_the_files_of_output(
    tmp_path: Path, made: list[FakeFetch]
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True)
        assert made[0].words == ("model/", "runs/**/*tfevents*", ".ciao-values/")

    follow(tmp_path, work, "%output=model/ metrics\n%tensorboard=runs\n")


@pytest.mark.parametrize("arrived", [False, True])
def test_a_follower_that_ends_leaves_no_task_of_a_fetch(
    tmp_path: Path, made: list[FakeFetch], arrived: bool
) -> None:
    async def work(fetch: OutputFetch, update: Any) -> None:
        await update(worker0=True)
        if arrived:
            made[0].arrived.set()
            await update(worker0=True)
        await fetch.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    follow(tmp_path, work)


class Claim:
    """Files on a claim, of which each removal takes as long as the test says."""

    def __init__(self) -> None:
        self.begun = self.removed = 0
        self.goes_on = asyncio.Event()

    def on_claim(self, *given: Any) -> SentFiles:
        async def execute(*_: Any) -> int:
            return 0

        async def remove() -> str:
            self.begun += 1
            await self.goes_on.wait()
            self.removed += 1
            return ""

        return SentFiles(OutputWay.CLAIM, 1, "worker-0", {}, execute, remove)


def ended_by_claim() -> dict[str, Any]:
    found = pod(FIRST, ended=True)
    found["status"]["initContainerStatuses"] = [
        {"name": "ciao-output-claim", "state": {"running": {}}}
    ]
    return found


@pytest.mark.parametrize("stopped", [False, True])
def test_a_removal_goes_on_when_its_cell_is_stopped(
    tmp_path: Path, made: list[FakeFetch], stopped: bool
) -> None:
    """Only what is here is removed; a later follower removes what an earlier one has left."""
    claim = Claim()

    def follower() -> OutputFetch:
        job = Job("job", "kubernetes", "tensorflow", (FIRST,), 1.0, header="%output=model/\n")
        none, make = cast("Any", None), cast("Any", FakeFetch)
        return OutputFetch(
            none, job, tmp_path, Settings(), lambda: None, make, on_claim=claim.on_claim
        )

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def main() -> None:
        states = Status(State.RUNNING, (ReplicaStatus(FIRST, State.SUCCEEDED),))
        first = follower()
        first.update(ITEM, states, {FIRST: ended_by_claim()})
        await turns()
        await first.close()
        assert claim.begun == 0  # nothing had come
        second = follower()
        second.update(ITEM, states, {FIRST: ended_by_claim()})
        await turns()
        made[-1].arrived.set()
        await turns()
        assert claim.begun == 1
        closing = asyncio.ensure_future(second.close())
        await turns()
        assert not closing.done()
        if stopped:
            closing.cancel()  # the kernel itself is killed
            await asyncio.gather(closing, return_exceptions=True)
            assert claim.removed == 0
        claim.goes_on.set()
        if not stopped:
            await closing
            assert claim.removed == 1
        third = follower()
        third.update(ITEM, states, {FIRST: ended_by_claim()})
        assert third.busy is stopped
        await turns()
        third.update(ITEM, states, {FIRST: ended_by_claim()})
        assert not third.busy
        await third.close()
        assert len(made) == 2

    asyncio.run(main())
    assert claim.removed >= 1
