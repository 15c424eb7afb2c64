"""Claims of ``%volume``, ``%checkpoint`` and ``%output``, looked at before a job exists."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.submission import claim_checks
from ciao_kernel.config import Settings
from ciao_kernel.errors import Refused, SpecError
from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.model import Checkpoint, JobSpec, ReplicaGroup

CLAIMS = "/api/v1/namespaces/team/persistentvolumeclaims"
BOUND = {"phase": "Bound"}


def claim(*modes: str, status: Any = BOUND, **meta: str) -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", **meta},
        "spec": {"accessModes": list(modes)},
        "status": status,
    }


class Server:
    """A cluster with some claims, and the events of each."""

    def __init__(self, *events: dict[str, str], rights: bool = True, **claims: Any) -> None:
        self.claims, self.rights, self.events = claims, rights, events
        self.access = SimpleNamespace(source="~/.kube/config")
        self.asked: list[str] = []

    async def known(self, path: str, body: Any = None) -> Any:
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["persistentvolumeclaims"]}
        return {"status": {"incomplete": False, "resourceRules": [rule] if self.rights else []}}

    async def find(self, path: str) -> Any:
        self.asked.append(path)
        found = self.claims.get(path.removeprefix(f"{CLAIMS}/"))
        if isinstance(found, Exception):
            raise found
        return found

    async def get(self, path: str, **query: str) -> Any:
        assert (path, query) == (
            "/api/v1/namespaces/team/events",
            {"fieldSelector": "involvedObject.uid=u"},
        )
        return {"items": list(self.events)}


def check(server: Server, volumes: str, workers: int = 2, **settings: Any) -> tuple[str, ...]:
    target: Any = Target(server, "team")  # type: ignore[arg-type]
    spec = JobSpec(
        "tensorflow",
        groups=(ReplicaGroup("worker", workers),),
        volumes=Volumes().parse(volumes) if volumes else (),
        checkpoint=Checkpoint() if settings else None,
    )
    return asyncio.run(claim_checks.check(spec, target, Settings(**settings), "mnist"))


def test_shared_claims_and_other_volumes_need_no_word() -> None:
    server = Server(data=claim("ReadWriteMany"), books=claim("ReadOnlyMany"))
    assert check(server, "data:a books:b:ro nfs://host/c:c tmp:d") == ()
    assert server.asked == [f"{CLAIMS}/data", f"{CLAIMS}/books"]


def test_who_may_not_look_is_told_nothing() -> None:
    server = Server(rights=False)
    assert check(server, "data:a") == ()
    assert server.asked == []
    # RBAC is not all that decides.
    assert check(Server(data=Refused("no", "", code=403, reason="Forbidden")), "data:a") == ()


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({}, "there is no claim data in the namespace team."),
        ({"data": claim(deletionTimestamp="2026-01-01T00:00:00Z")}, "is being deleted."),
        ({"data": claim(status={"phase": "Lost"})}, "has lost its disk."),
        ({"data": claim("ReadWriteOncePod")}, "is for one pod at a time"),
    ],
)
def test_a_claim_that_cannot_be_used_is_refused(claims: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        check(Server(**claims), "data/sub:a")
    assert caught.value.directive == "volume"


def test_the_claim_of_a_checkpoint_is_looked_at_too() -> None:
    with pytest.raises(SpecError, match="there is no claim runs") as caught:
        check(Server(), "", checkpoint="runs/team")
    assert caught.value.directive == "checkpoint"
    with pytest.raises(SpecError, match="for one pod at a time") as caught:
        check(Server(runs=claim("ReadWriteOncePod")), "", checkpoint="runs/team")
    assert caught.value.directive == "checkpoint"
    (said,) = check(Server(runs=claim("ReadWriteOnce")), "", checkpoint="runs/team")
    assert said.startswith("the claim runs can be used on one node at a time (ReadWriteOnce): if")


def to_claim(server: Server, *volumes: str, workers: int = 2) -> tuple[str, ...]:
    """Check a job whose files come back by the claim ``out``."""
    target: Any = Target(server, "team")  # type: ignore[arg-type]
    spec = JobSpec(
        "tensorflow",
        groups=tuple(
            ReplicaGroup(f"role{number}", workers, volumes=Volumes().parse(one) if one else ())
            for number, one in enumerate(volumes or [""])
        ),
        outputs=("model/", "by:claim"),
    )
    return asyncio.run(claim_checks.check(spec, target, Settings(output_claim="out"), "mnist"))


@pytest.mark.parametrize(
    ("status", "modes", "message"),
    [
        (BOUND, ["ReadWriteOncePod"], "the claim out is for one pod at a time"),
        ({"phase": "Lost"}, ["ReadWriteMany"], "the claim out in the namespace team has lost"),
    ],
)
def test_the_claim_of_output_is_looked_at_too(
    status: dict[str, str], modes: list[str], message: str
) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        to_claim(Server(out=claim(*modes, status=status)))
    assert caught.value.directive == "output"
    assert "%output" not in caught.value.hint
    (said,) = to_claim(Server(out=claim("ReadWriteOnce")))
    assert said.startswith("the claim out can be used on one node at a time (ReadWriteOnce): if")
    assert to_claim(Server(out=claim("ReadWriteMany"))) == ()
    assert to_claim(Server(out=claim("ReadWriteOncePod")), workers=1) == ()


def test_all_replicas_write_files_of_output_whoever_else_mounts_the_claim() -> None:
    with pytest.raises(SpecError, match="for one pod at a time") as caught:
        to_claim(Server(out=claim("ReadWriteOncePod")), "out:a", "tmp:x", workers=1)
    assert caught.value.directive == "output"
    for_readers = Server(out=claim("ReadWriteOnce", "ReadOnlyMany"))
    (said,) = to_claim(for_readers, "out:a:ro")
    assert "(ReadOnlyMany, ReadWriteOnce)" in said


def test_one_replica_may_use_any_claim() -> None:
    assert check(Server(data=claim("ReadWriteOnce")), "data:a", workers=1) == ()
    assert check(Server(data=claim("ReadWriteOncePod")), "data:a", workers=1) == ()


def test_only_the_replicas_that_mount_a_claim_count() -> None:
    target: Any = Target(
        Server(one=claim("ReadWriteOncePod"), few=claim("ReadWriteOnce")),  # type: ignore[arg-type]
        "team",
    )

    def said(chief: str, worker: str) -> tuple[str, ...]:
        groups = (
            ReplicaGroup("chief", 1, volumes=Volumes().parse(chief)),
            ReplicaGroup("worker", 2, volumes=Volumes().parse(worker)),
        )
        spec = JobSpec("tensorflow", groups)
        return asyncio.run(claim_checks.check(spec, target, Settings(), "mnist"))

    assert said("one:a few:b", "tmp:x") == ()
    (few,) = said("one:a", "few:b")
    assert "few can be used on one node" in few
    (few,) = said("few:a", "few:b")
    assert "few can be used on one node" in few
    with pytest.raises(SpecError, match="for one pod at a time") as caught:
        said("tmp:a", "one:b")
    assert "behind a role of one" in (caught.value.hint or "")


def test_a_claim_for_readers_is_not_shared_by_writers() -> None:
    server = Server(data=claim("ReadWriteOnce", "ReadOnlyMany"))
    assert check(server, "data:a:ro") == ()
    (said,) = check(server, "data:a")
    assert "(ReadOnlyMany, ReadWriteOnce)" in said


def event(reason: str, message: str, second: int = 0) -> dict[str, str]:
    at = f"2026-01-01T00:00:{second:02d}Z"
    return {"reason": reason, "message": message, "type": "Normal", "lastTimestamp": at}


def test_the_cluster_says_why_a_claim_has_no_disk() -> None:
    pending = claim("ReadWriteMany", status={"phase": "Pending"})
    none = event("FailedBinding", "no persistent volumes available for this claim", 5)
    waits = event("WaitForFirstConsumer", "waiting for first consumer", 1)
    (said,) = check(Server(waits, none, data=pending), "data:a")
    assert said == (
        "the claim data has no disk yet, and the replicas wait for it: FailedBinding: no "
        "persistent volumes available for this claim."
    )
    assert check(Server(waits, data=pending), "data:a") == ()
    assert check(Server(data=pending), "data:a") == ()
