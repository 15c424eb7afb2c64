"""The record of a job's next try; anybody in the namespace may have written it."""

from __future__ import annotations

import asyncio
import base64
import copy
import gzip
import json
from typing import Any, cast

import pytest

from ciao_kernel.backends.kubernetes import job_metadata, next_try
from ciao_kernel.backends.kubernetes.manifest import Objects
from ciao_kernel.kube.client import Client
from ciao_kernel.model import Job, Manifest
from tests.unit.backends.kubernetes.test_manifest import objects
from tests.unit.backends.kubernetes.test_retries import HEAD, again


def recorded(made: Objects, **change: Any) -> Manifest:
    """The ConfigMap of a second try, with other objects in it."""
    name, place = (made.job["metadata"][key] for key in ("name", "namespace"))
    job = Job(name, "kubernetes", "x", (), 0.0, place, uid="1", run="run-1", owner="ada@laptop")
    item = cast("Manifest", copy.deepcopy(next_try._record(made, job)))
    item["metadata"] |= {"uid": "r", "creationTimestamp": "2026-01-01T00:00:00Z"}
    if change:
        packed = gzip.decompress(base64.b64decode(item["binaryData"]["objects"]))
        told = {**json.loads(packed), **change}
        text = base64.b64encode(gzip.compress(json.dumps(told).encode())).decode()
        item["binaryData"]["objects"] = text
    return item


def test_a_record_has_the_next_try_and_shows_the_last() -> None:
    made = again(objects(HEAD))
    record = next_try.read(recorded(made), made.job["metadata"]["namespace"])
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
    assert next_try.read(recorded(made, path=made.path), place) is not None
    assert next_try.read(recorded(made, **change), place) is None


def test_a_record_of_another_name_or_that_unpacks_for_ever_is_none() -> None:
    made = again(objects(HEAD))
    item, place = recorded(made), made.job["metadata"]["namespace"]
    renamed = copy.deepcopy(item)
    renamed["metadata"]["name"] = "other-next-try"
    assert next_try.read(renamed, place) is None
    bomb = copy.deepcopy(item)
    bomb["binaryData"]["objects"] = base64.b64encode(gzip.compress(bytes(1 << 25))).decode()
    assert next_try.read(bomb, place) is None


def test_only_the_own_record_is_withdrawn_and_once() -> None:
    made = again(objects(HEAD))
    item, deleted = recorded(made), list[str]()

    class Server:
        async def find(self, _: str) -> Manifest:
            return item

        async def delete(self, _: str, *, uid: str) -> bool:
            deleted.append(uid)
            return len(deleted) == 1

    server = cast("Client", Server())
    name, place = (made.job["metadata"][key] for key in ("name", "namespace"))
    job = Job(name, "kubernetes", "x", (), 0.0, place, uid="1")
    later = Job(name, "kubernetes", "x", (), 0.0, place, uid="7")

    async def main() -> list[bool]:
        calls = (later, {}), (job, {"before": 2}), (job, {}), (job, {})
        return [bool(await next_try.withdraw(server, one, **how)) for one, how in calls]

    assert asyncio.run(main()) == [False, False, True, False]
    assert deleted == ["r", "r"]
