"""The record of a job's next try; anybody in the namespace may have written it."""

from __future__ import annotations

import asyncio
import base64
import copy
import gzip
import json
from dataclasses import replace
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, template_holder
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import next_objects, next_try, try_record
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.backends.kubernetes.lifecycle.known_tries import KnownTries
from ciao_kernel.backends.kubernetes.lifecycle.resubmission import Resubmission
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.errors import BackendError, Refused
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest
from tests.unit.backends.kubernetes.lifecycle.test_retries import HEAD, again
from tests.unit.backends.kubernetes.manifests.test_manifest import objects


def recorded(made: Objects, **change: Any) -> Manifest:
    """The ConfigMap of a second try, with other objects in it."""
    name, place = (made.job["metadata"][key] for key in ("name", "namespace"))
    job = Job(name, "kubernetes", "x", (), 0.0, place, uid="1", run="run-1", owner="ada@laptop")
    item = cast("Manifest", copy.deepcopy(try_record.record(made, job)))
    item["metadata"] |= {"uid": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if change:
        packed = gzip.decompress(base64.b64decode(item["binaryData"]["objects"]))
        told = {**json.loads(packed), **change}
        text = base64.b64encode(gzip.compress(json.dumps(told).encode())).decode()
        item["binaryData"]["objects"] = text
    return item


def test_a_record_has_the_next_try_and_shows_the_last() -> None:
    made = again(objects(HEAD))
    record = try_record.read(recorded(made), made.job["metadata"]["namespace"])
    assert record is not None
    assert (record.made.job, record.made.path) == (made.job, made.path)
    assert list(record.made.beside) == list(made.beside)
    assert (record.first_uid, record.number) == ("1", 2)
    last = job_metadata.job(record.last, 0.0)
    assert (last.uid, last.run, last.tries, last.identity) == ("1", "run-1", 1, "1")


@pytest.mark.parametrize(
    "change",
    [
        {"path": "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles"},
        {"path": "/apis/kubeflow.org/v1/namespaces/other/tfjobs"},
        {"beside": [{"kind": "RoleBinding", "metadata": {"namespace": "team"}}]},
        {"beside": 5},
        {"job": {"metadata": {"name": "j"}}},
    ],
)
def test_a_record_of_anything_else_is_none(change: Any) -> None:
    made = again(objects(HEAD))
    place = made.job["metadata"]["namespace"]
    assert try_record.read(recorded(made, path=made.path), place) is not None
    assert try_record.read(recorded(made, **change), place) is None


def test_a_record_of_another_name_or_that_unpacks_for_ever_is_none() -> None:
    made = again(objects(HEAD))
    item, place = recorded(made), made.job["metadata"]["namespace"]
    renamed = copy.deepcopy(item)
    renamed["metadata"]["name"] = "other-next-try"
    assert try_record.read(renamed, place) is None
    bomb = copy.deepcopy(item)
    bomb["binaryData"]["objects"] = base64.b64encode(gzip.compress(bytes(1 << 25))).decode()
    assert try_record.read(bomb, place) is None


def test_a_record_that_nests_without_end_is_none() -> None:
    made = again(objects(HEAD))
    item, place = recorded(made), made.job["metadata"]["namespace"]
    deep = gzip.compress(b"[" * 200_000)
    item["binaryData"]["objects"] = base64.b64encode(deep).decode()
    assert try_record.read(item, place) is None


class Server:
    """The record of a namespace.

    Args:
        item: The record, None if there is none.
        refuses: Status of the answer to a deletion.
    """

    def __init__(self, item: Manifest | None, refuses: int = 0) -> None:
        self.item, self.refuses = item, refuses
        self.deleted, self.client = list[str](), cast("Client", self)

    async def known(self, _: str, body: Any) -> Any:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {"status": {"resourceRules": [every], "incomplete": False}}

    async def find(self, _: str) -> Manifest | None:
        return copy.deepcopy(self.item)

    async def create(self, _: str, body: Manifest) -> Manifest:
        if self.item:
            raise Refused("exists", code=409, reason="AlreadyExists")
        meta = {**body["metadata"], "uid": "new"}
        self.item = {**copy.deepcopy(body), "metadata": meta}
        return self.item

    async def patch(self, _: str, body: Manifest) -> None:
        assert self.item is not None
        assert body["metadata"]["uid"] == self.item["metadata"]["uid"]
        self.item["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"]
        for label in body["metadata"]["labels"]:
            self.item["metadata"]["labels"].pop(label, None)

    async def delete(self, _: str, *, uid: str) -> bool:
        if self.refuses:
            raise Refused("forbidden", code=self.refuses)
        self.deleted.append(uid)
        gone = self.item is not None and self.item["metadata"]["uid"] == uid
        self.item = None if gone else self.item
        return gone


def of(made: Objects, **change: Any) -> Job:
    name, place = (made.job["metadata"][key] for key in ("name", "namespace"))
    return replace(Job(name, "kubernetes", "x", (), 0.0, place, uid="1"), **change)


def test_only_the_own_record_is_withdrawn_and_once() -> None:
    made = again(objects(HEAD))
    server = Server(recorded(made))

    async def main() -> list[bool]:
        jobs = of(made, uid="7"), of(made), of(made)
        return [bool(await next_try.withdraw(server.client, one)) for one in jobs]

    assert asyncio.run(main()) == [False, True, False]
    assert server.deleted == ["r"]


def test_a_record_that_the_user_may_not_remove_is_no_success() -> None:
    made = again(objects(HEAD))
    server = Server(recorded(made), refuses=403)
    with pytest.raises(BackendError, match="may be started again"):
        asyncio.run(next_try.withdraw(server.client, of(made)))


def test_a_settled_record_is_of_its_try_and_waits_no_more() -> None:
    made = again(objects(HEAD))
    server, second = Server(recorded(made)), of(made, uid="2", first_uid="1", tries=2)
    item = {**made.job, "metadata": {**made.job["metadata"], "uid": "2"}}

    async def main() -> list[bool]:
        return [await next_try.settle(server.client, second, item) for _ in range(2)]

    assert asyncio.run(main()) == [True, True]
    assert server.item is not None
    assert [one["uid"] for one in server.item["metadata"]["ownerReferences"]] == ["2"]
    assert asyncio.run(next_try.of_job(server.client, of(made))) is None
    server.item = None  # somebody has deleted the job
    assert asyncio.run(main()) == [False, False]


@pytest.mark.parametrize("foreign", [True, False])
def test_a_record_of_other_objects_is_replaced(foreign: bool) -> None:
    made = again(objects(HEAD))
    change: dict[str, Any] = {}
    if foreign:
        job = copy.deepcopy(made.job)
        (template,) = template_holder.pod_templates(job).values()
        template["spec"]["serviceAccountName"] = "admin"
        change = {"job": job}
    server = Server(recorded(made, **change))
    target = cast("Target", server)
    mine = next_objects.with_run(made, "run-3")
    record, others = asyncio.run(next_try.write(target, mine, of(made)))
    assert record is not None
    assert "admin" not in json.dumps(record.made.job)
    assert (others, server.deleted) == ((False, ["r"]) if foreign else (True, []))


def test_a_follower_that_knows_an_earlier_try_goes_on_from_the_recorded_one() -> None:
    made = again(objects(HEAD))
    job = copy.deepcopy(made.job)
    job["metadata"]["annotations"][job_metadata.TRY] = "3"
    item = recorded(replace(made, job=job))

    class Records(Server):
        async def find(self, path: str) -> Manifest | None:
            return copy.deepcopy(self.item) if "configmaps" in path else None

    told = list[Job]()

    class Told(Resubmission):
        async def _recorded(self, target: Target, job: Job, *_: Any) -> Job | None:
            told.append(job)
            return job

    target = cast("Target", Records(item))
    work: Any = Told(Deletions(), KnownTries()).resumed
    asyncio.run(work(target, of(made), f"{made.path}/x", None, print))
    assert [(one.tries, one.run, one.identity) for one in told] == [(2, "run-1", "1")]
