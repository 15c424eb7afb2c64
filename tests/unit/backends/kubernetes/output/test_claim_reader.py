"""The pod that reads a claim, and the files of one replica that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.pod_view import LatestPod
from ciao_kernel.backends.kubernetes.output import output_claim, output_state
from ciao_kernel.backends.kubernetes.output.claim_reader import ClaimReader, SavedOutput
from ciao_kernel.backends.kubernetes.output.output_claim import Kept
from ciao_kernel.backends.kubernetes.output.reader_start import Patience
from ciao_kernel.delivery.replica_files import BUSY, HEADER, LIST, POD
from ciao_kernel.delivery.transfers import is_final
from ciao_kernel.errors import BackendError, ClusterFault, Refused
from ciao_kernel.kube.client import Object
from ciao_kernel.model import Replica
from ciao_kernel.model.queries import Streams

WORKER = Replica("worker", 0)
OWNER: Object = {"apiVersion": "v1", "kind": "TFJob", "metadata": {"name": "job", "uid": "owner"}}
KEPT = Kept("results", "ciao-output/" + "0" * 32)
MODEL: Object = {
    "spec": {
        "initContainers": [
            {
                "name": output_claim.NAME,
                "image": "tools:1",
                "command": ["python3"],
                "volumeMounts": [{"name": "claim", "mountPath": "/ciao-claim"}],
            }
        ],
        "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": "results"}}],
    }
}


async def model() -> Object:
    return MODEL


def nothing(_: bytes) -> None:
    pass


STREAMS = Streams(nothing, nothing, None)


class Cluster:
    """Pods that have the next phase at each look."""

    def __init__(self, *phases: str, refusals: Sequence[Exception] = ()) -> None:
        self.phases, self.refusals = list(phases), list(refusals)
        self.pods: dict[str, Object] = {}
        self.made = 0
        self.deleted: list[str] = []

    async def create(self, path: str, body: Object) -> Object:
        if self.refusals:
            raise self.refusals.pop(0)
        self.made += 1
        pod = {**body, "metadata": {**body["metadata"], "uid": f"reader-{self.made}"}}
        self.pods[f"{path}/{body['metadata']['name']}"] = pod
        return pod

    async def find(self, path: str) -> Object | None:
        phase = self.phases.pop(0) if len(self.phases) > 1 else self.phases[0]
        if path in self.pods and phase != "gone":
            waits = [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no image."}}}]
            return {**self.pods[path], "status": {"phase": phase, "containerStatuses": waits}}
        return None

    async def get(self, path: str, **query: str) -> Object:
        raise AssertionError("the pod itself says why it waits")

    async def delete(self, path: str, *, uid: str) -> object:
        self.deleted.append(uid)
        del self.pods[path]
        return True


class Commands:
    """Ends of commands in the pod, by the order of their start."""

    def __init__(self, *ends: int | Exception) -> None:
        self.ends, self.paths = list(ends), list[str]()

    async def run(self, path: str, command: Sequence[str], streams: Streams) -> int:
        self.paths.append(path)
        end = self.ends.pop(0) if self.ends else 0
        if isinstance(end, Exception):
            raise end
        return end


def reader(
    cluster: Cluster, commands: Commands, start: float = 60.0, again: float = 60.0
) -> ClaimReader:
    patience = Patience(start, again=again, look=0.0)
    return ClaimReader(cluster, commands.run, "team", ["output/"], patience=patience)


def test_one_pod_runs_all_commands_and_is_deleted() -> None:
    cluster, commands = Cluster("Pending", "Running"), Commands(0, 7)
    one = reader(cluster, commands)

    async def main() -> None:
        ends = [await one.execute(model, OWNER, ["x"], STREAMS) for _ in range(2)]
        assert ends == [0, 7]
        (path,) = cluster.pods
        assert commands.paths == [path, path]
        assert path.startswith("/api/v1/namespaces/team/pods/ciao-output-reader-")
        await one.close()
        await one.close()

    asyncio.run(main())
    assert (cluster.made, cluster.deleted) == (1, ["reader-1"])


def test_replicas_that_come_together_have_one_pod() -> None:
    cluster, commands = Cluster("Pending", "Pending", "Running"), Commands()
    one = reader(cluster, commands)

    async def main() -> None:
        await asyncio.gather(*(one.execute(model, OWNER, ["x"], STREAMS) for _ in range(3)))

    asyncio.run(main())
    assert (cluster.made, len(commands.paths)) == (1, 3)


def test_a_pod_that_has_ended_is_made_again() -> None:
    cluster, commands = Cluster("Running", "Succeeded", "Running"), Commands()
    one = reader(cluster, commands)

    async def main() -> None:
        for _ in range(2):
            await one.execute(model, OWNER, ["x"], STREAMS)

    asyncio.run(main())
    assert (cluster.made, cluster.deleted) == (2, ["reader-1"])


def test_a_pod_that_ends_before_the_command_begins_is_a_fault_that_passes() -> None:
    refusal = Refused("container not found", code=400)
    cluster, commands = Cluster("Running", "Succeeded"), Commands(refusal)
    with pytest.raises(ClusterFault, match="the pod that reads the claim has ended"):
        asyncio.run(reader(cluster, commands).execute(model, OWNER, ["x"], STREAMS))
    with pytest.raises(Refused, match="container not found"):
        asyncio.run(
            reader(Cluster("Running"), Commands(refusal)).execute(model, OWNER, ["x"], STREAMS)
        )


@pytest.mark.parametrize("code", [401, 408, 425, 429, 503])
def test_a_busy_server_is_not_asked_for_the_pod_after_a_refused_command(code: int) -> None:
    cluster, commands = Cluster("Running", "Succeeded"), Commands(Refused("not now", code=code))
    with pytest.raises(Refused, match="not now"):
        asyncio.run(reader(cluster, commands).execute(model, OWNER, ["x"], STREAMS))


@pytest.mark.parametrize(
    ("phases", "why"),
    [
        (("Failed",), "ErrImagePull: no image"),
        (("gone",), "it was deleted"),
        (("Pending",), "ErrImagePull: no image"),
    ],
)
def test_a_pod_that_does_not_start_is_an_error(phases: tuple[str, ...], why: str) -> None:
    cluster = Cluster(*phases)
    start = 0.05 if phases == ("Pending",) else 60.0
    with pytest.raises(BackendError, match=f"the claim did not start: {why}"):
        asyncio.run(reader(cluster, Commands(), start).execute(model, OWNER, ["x"], STREAMS))
    assert cluster.deleted == ["reader-1"]


def test_a_pod_that_does_not_start_is_waited_for_once_for_all_replicas() -> None:
    cluster = Cluster("Pending")
    one = reader(cluster, Commands(), 0.05)

    async def main() -> list[BaseException]:
        work = (one.execute(model, OWNER, ["x"], STREAMS) for _ in range(3))
        found = await asyncio.gather(*work, return_exceptions=True)
        return [error for error in found if isinstance(error, BaseException)]

    errors = asyncio.run(main())
    assert len({str(error) for error in errors}) == 1
    assert (len(errors), cluster.made, cluster.deleted) == (3, 1, ["reader-1"])


def test_a_pod_that_did_not_start_is_made_again_later() -> None:
    cluster = Cluster("Failed", "Running")
    one = reader(cluster, Commands(), again=0.0)

    async def main() -> int:
        with pytest.raises(BackendError, match="did not start"):
            await one.execute(model, OWNER, ["x"], STREAMS)
        return await one.execute(model, OWNER, ["x"], STREAMS)

    assert asyncio.run(main()) == 0
    assert cluster.made == 2


@pytest.mark.parametrize(
    ("code", "final"),
    [
        *((code, True) for code in (403, 404, 422)),
        *((code, False) for code in (401, 408, 425, 429, 500, 503)),
    ],
)
def test_a_refusal_of_a_server_in_trouble_is_not_final(code: int, final: bool) -> None:
    """A fetch tries again after these."""
    cluster = Cluster("Running", refusals=[Refused("not now", code=code)])
    one = reader(cluster, Commands())

    async def main() -> None:
        with pytest.raises(BackendError, match="reads the claim is refused: not now") as caught:
            await one.execute(model, OWNER, ["x"], STREAMS)
        assert is_final(caught.value) is final
        assert await one.execute(model, OWNER, ["x"], STREAMS) == 0

    asyncio.run(main())


class Reading:
    """A reader whose commands send bytes, and end in a given way."""

    def __init__(self, *ends: int | Exception, sent: bytes = b"", said: bytes = b"") -> None:
        self.ends, self.sent, self.said = list(ends), sent, said
        self.requests = 0
        self.scripts: list[bytes] = []

    async def execute(
        self,
        model: Callable[[], Awaitable[Object]],
        owner: Object,
        command: Sequence[str],
        streams: Streams,
    ) -> int:
        self.requests += 1
        assert streams.input is not None
        self.scripts.append(await anext(streams.input))  # type: ignore[call-overload]
        end = self.ends.pop(0) if self.ends else 0
        if isinstance(end, Exception):
            raise end
        if self.sent:
            streams.out(self.sent)
        streams.err(self.said)
        return end


def sidecar(code: int | None, uid: str = "one", message: str = "") -> Object:
    state = (
        {"running": {}} if code is None else {"terminated": {"exitCode": code, "message": message}}
    )
    ended = [{"name": output_claim.NAME, "state": state}]
    return {"metadata": {"name": "job-0", "uid": uid}, "status": {"initContainerStatuses": ended}}


def saved(reading: Reading, pod: Object | None, kept: Kept | None = KEPT) -> SavedOutput:
    return SavedOutput(
        reading, WORKER, LatestPod(pod), kept, model, OWNER, output_state.end, pause=0.0
    )


async def request() -> Any:
    yield b"request"


def fetched(one: SavedOutput) -> bytes:
    data = bytearray()
    assert asyncio.run(one.execute(["python3"], Streams(data.extend, nothing, request()))) == 0
    return bytes(data)


def of_pod(uid: bytes) -> bytes:
    return HEADER.pack(POD, len(uid)) + uid + HEADER.pack(LIST, 2) + b"{}"


REST = HEADER.pack(LIST, 2) + b"{}"


def test_only_what_the_same_pod_has_copied_is_passed_on() -> None:
    assert fetched(saved(Reading(sent=of_pod(b"one")), sidecar(0))) == REST
    with pytest.raises(BackendError, match="the claim has those of an earlier pod"):
        fetched(saved(Reading(sent=of_pod(b"two")), sidecar(0)))


def test_files_of_a_pod_that_is_gone_are_passed_on_and_removed_as_those_of_their_pod() -> None:
    reading = Reading(sent=of_pod(b"two"))
    one = saved(reading, None)
    assert fetched(one) == of_pod(b"two")
    assert asyncio.run(one.remove()) == ""
    assert b"'pod': 'two'" in reading.scripts[-1]


def test_nothing_is_read_before_the_sidecar_has_ended() -> None:
    reading, view = Reading(sent=of_pod(b"one")), LatestPod(sidecar(None))
    one = SavedOutput(reading, WORKER, view, KEPT, model, OWNER, output_state.end)

    async def main() -> None:
        streams = Streams(nothing, nothing, request())
        waiting = asyncio.ensure_future(one.execute(["python3"], streams))
        for _ in range(5):
            await asyncio.sleep(0)
        assert reading.requests == 0
        view.update(sidecar(0))
        assert await waiting == 0
        assert reading.requests == 1

    asyncio.run(main())


def test_a_sidecar_that_failed_and_an_unknown_place_are_told() -> None:
    reading = Reading()
    with pytest.raises(BackendError, match=r"^the claim cannot be written: No space\.$"):
        fetched(saved(reading, sidecar(1, message="the claim cannot be written: No space")))
    with pytest.raises(BackendError, match="their place on a claim is not known here"):
        fetched(saved(reading, sidecar(0), None))
    assert asyncio.run(saved(reading, sidecar(0), None).remove()) == ""
    assert reading.requests == 0


def test_the_error_says_where_files_stay_unless_the_reason_may_pass() -> None:
    with pytest.raises(BackendError) as caught:
        fetched(saved(Reading(BackendError("refused.", "Ask.")), sidecar(0)))
    assert caught.value.hint == f"They stay in {KEPT.path} on the claim results. Ask."
    for passing in (ClusterFault("cut"), Refused("not now", code=503)):
        with pytest.raises(type(passing)):
            fetched(saved(Reading(passing), sidecar(0)))


def test_a_removal_names_the_pod_and_its_failure() -> None:
    reading = Reading(1, said=b"Permission denied\n")
    said = asyncio.run(saved(reading, sidecar(0)).remove())
    assert said == (
        "files of %output could not be removed: Permission denied. "
        f"They stay in {KEPT.path} on the claim results."
    )
    assert b"'pod': 'one'" in reading.scripts[0]
    assert f"'/ciao-claim/{KEPT.path}/worker-0'".encode() in reading.scripts[0]


def test_a_removal_is_tried_again_within_bounds_if_the_reason_may_pass() -> None:
    passing = [ClusterFault("cut"), Refused("not now", code=503)]
    assert asyncio.run(saved(Reading(*passing), sidecar(0)).remove()) == ""
    reading = Reading(*(ClusterFault("cut") for _ in range(99)))
    assert "could not be removed: cut" in asyncio.run(saved(reading, sidecar(0)).remove())
    assert reading.requests == 4
    limited = Reading(*(Refused("not now", code=code) for code in (429, 401, 425)))
    assert asyncio.run(saved(limited, sidecar(0)).remove()) == ""
    assert limited.requests == 4
    final = Reading(Refused("forbidden", code=403))
    assert "could not be removed: forbidden" in asyncio.run(saved(final, sidecar(0)).remove())
    assert final.requests == 1


def test_files_that_another_kernel_reads_are_left_to_it() -> None:
    said = asyncio.run(saved(Reading(*[BUSY] * 99), sidecar(0)).remove())
    assert said == (
        "the files of worker-0 are still read on the claim, perhaps by another kernel or "
        f"terminal, which removes them then. They stay in {KEPT.path} on the claim results."
    )
    cut = Reading(BUSY, BUSY)  # by a connection of this kernel that was cut
    assert asyncio.run(saved(cut, sidecar(0)).remove()) == ""
