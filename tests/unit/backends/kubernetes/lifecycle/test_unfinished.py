"""What the next kernel does about submissions that a killed kernel left in the middle."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, operator_v1
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import unfinished
from ciao_kernel.errors import Refused
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import Event, Job, Notice
from tests.helpers.api_objects import KINDS, ApiObjects, Object

JOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
INDEXED = "/apis/batch/v1/namespaces/team/jobs"
MAPS = "/api/v1/namespaces/team/configmaps"
PODS = "/api/v1/namespaces/team/pods"
OLD, NEW = 700.0, 300.0


class Client:
    """A client without a network; ``refuses`` is part of a path that this user may not use."""

    def __init__(self, server: ApiObjects, refuses: str = "") -> None:
        self.server, self.refuses = server, refuses
        self.clock = ServerClock()

    async def _call(self, method: str, path: str, query: Any = None, body: Any = None) -> Object:
        if self.refuses and self.refuses in path:
            raise Refused("you may not", code=403)
        code, found = self.server.answer(method, path, query or {}, body)
        if code >= 300:
            raise Refused(found["message"], code=code, reason=found["reason"])
        return found

    async def get(self, path: str, **query: str) -> Object:
        return await self._call("GET", path, query)

    async def known(self, path: str, body: Object | None = None) -> Object:
        return await self._call("POST" if body else "GET", path, {}, body)

    async def find(self, path: str) -> Object | None:
        try:
            return await self.get(path)
        except Refused as error:
            if error.code != 404:
                raise
            return None

    async def patch(self, path: str, body: Object) -> Object:
        return await self._call("PATCH", path, {}, body)

    async def delete(self, path: str, *, uid: str) -> None:
        await self._call("DELETE", path, {}, {"preconditions": {"uid": uid}})


class Place:
    """A namespace after a kernel was killed there so many seconds ago."""

    def __init__(self, *rules: Object, ago: float = OLD) -> None:
        self.server = ApiObjects(*rules, created=time.time() - ago)
        self.shown: list[str] = []

    def source(self, run: str = "run-1", owner: str = "ada@laptop kernel 7", **meta: Any) -> None:
        """A source that no job owns yet."""
        labels = {**job_metadata.labels("mnist"), job_metadata.UNOWNED: "true"}
        self._make(MAPS, "mnist-source", run, owner, labels=labels, **meta)

    def job(
        self, run: str = "run-1", owner: str = "ada@laptop kernel 7", condition: str = ""
    ) -> None:
        """A job that mounts the source, and something else that ciao did not make."""
        self._make(JOBS, "mnist", run, owner, labels=job_metadata.labels("mnist"))
        volumes = [{"configMap": {"name": name}} for name in ("mnist-source", "others")]
        template = {"spec": {"volumes": [*volumes, {"emptyDir": {}}]}}
        self.server.objects[f"{JOBS}/mnist"] |= {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        }

    def indexed_job(self, condition: str = "") -> None:
        """An Indexed Job that mounts the source."""
        owner = "ada@laptop kernel 7"
        self._make(INDEXED, "mnist", "run-1", owner, labels=job_metadata.labels("mnist"))
        volumes = [{"configMap": {"name": "mnist-source"}}]
        self.server.objects[f"{INDEXED}/mnist"] |= {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": {"template": {"spec": {"volumes": volumes}}},
            "status": {"conditions": [{"type": condition, "status": "True"}]},
        }

    def pod(self, phase: str) -> None:
        labels = {operator_v1.JOB_LABEL: "mnist"}
        self._make(PODS, "mnist-worker-0", "", "", labels=labels)
        self.server.objects[f"{PODS}/mnist-worker-0"]["status"] = {"phase": phase}

    def _make(self, path: str, name: str, run: str, owner: str, **meta: Any) -> None:
        notes = {job_metadata.RUN: run, "ciao-kernel/owner": owner}
        meta = {"name": name, "namespace": "team", "annotations": notes, **meta}
        self.server.answer("POST", path, {}, {"metadata": meta})

    def settle(
        self, user: str = "ada@laptop", refuses: str = "", patience: float = 60.0
    ) -> list[str]:
        """What is left."""

        def emit(event: Event) -> None:
            assert isinstance(event, Notice)
            self.shown.append(event.text)

        asyncio.run(unfinished.settle(self.target(refuses), user, emit, patience))
        return [name.partition("/")[0] for name in self.server.names()]

    def target(self, refuses: str = "") -> Target:
        return Target(Client(self.server, refuses), "team")  # type: ignore[arg-type]

    def owners(self) -> Any:
        return self.server.objects[f"{MAPS}/mnist-source"]["metadata"].get("ownerReferences")


# ------------------------------------------------------------------- a source without a job


def test_a_source_without_a_job_is_removed() -> None:
    place = Place()
    place.source()
    assert place.settle() == []
    assert place.shown == []


def test_a_source_of_another_submission_of_that_name_is_removed_too() -> None:
    place = Place()
    place.source("run-1")
    place.job("run-2", condition="Running")
    assert place.settle() == ["tfjobs"]


@pytest.mark.parametrize("user", ["", "bob@laptop", "ada@desktop"])
def test_a_source_of_somebody_else_stays(user: str) -> None:
    place = Place()
    place.source()
    assert place.settle(user) == ["configmaps"]


def test_a_source_whose_submission_may_still_go_on_stays() -> None:
    place = Place(ago=NEW)
    place.source()
    assert place.settle() == ["configmaps"]


def test_an_object_with_an_owner_or_without_our_mark_stays() -> None:
    place = Place()
    place.source(ownerReferences=[{"kind": "Pod", "uid": "kernel"}])
    assert place.settle() == ["configmaps"]
    place = Place()
    place.source()
    del place.server.objects[f"{MAPS}/mnist-source"]["metadata"]["labels"][job_metadata.UNOWNED]
    assert place.settle() == ["configmaps"]


@pytest.mark.parametrize("verb", ["list", "patch", "delete"])
def test_who_may_not_leaves_it(verb: str) -> None:
    verbs = {"list", "patch", "delete", "get", "create"} - {verb}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": sorted(verbs)}
    place = Place(rule)
    place.source()
    assert place.settle() == ["configmaps"]
    assert place.shown == []


def test_a_refusal_is_silent() -> None:
    place = Place()
    place.source()
    assert place.settle(refuses="configmaps") == ["configmaps"]
    assert place.shown == []


# ------------------------------------------------------------- a job that owns nothing yet


@pytest.mark.parametrize("ago", [OLD, NEW])
def test_a_job_gets_the_source_that_it_already_uses(ago: float) -> None:
    place = Place(ago=ago)
    place.source()
    place.job(condition="Running")
    assert place.settle() == ["configmaps", "tfjobs"]
    uid = place.server.objects[f"{JOBS}/mnist"]["metadata"]["uid"]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": uid}
    assert place.owners() == [owner]
    assert job_metadata.UNOWNED not in str(place.server.objects)
    place.server.answer("DELETE", f"{JOBS}/mnist", {}, {})
    assert place.server.names() == []


def test_a_job_that_is_deleted_takes_its_source_along() -> None:
    place = Place(ago=NEW)
    place.source()
    place.job()
    asyncio.run(unfinished.adopt(place.target(), Job("mnist", "kubernetes", "", (), 1.0, "team")))
    assert place.owners() is not None


# ------------------------------------------------------------------- a job without a source


@pytest.mark.parametrize("pods", [[], ["Pending"]])
def test_a_job_without_its_source_is_removed_and_named(pods: list[str]) -> None:
    place = Place()
    place.job(condition="Created")
    for phase in pods:
        place.pod(phase)
    assert "tfjobs" not in place.settle()
    assert place.shown == ["mnist is removed: its kernel ended before its source was sent."]


@pytest.mark.parametrize("condition", ["Running", "Succeeded", "Failed"])
def test_a_job_that_had_its_source_stays(condition: str) -> None:
    place = Place()
    place.job(condition=condition)
    assert place.settle() == ["tfjobs"]


def test_an_indexed_job_is_settled_like_the_others() -> None:
    place = Place()
    place.indexed_job()
    assert place.settle() == []
    assert place.shown == ["mnist is removed: its kernel ended before its source was sent."]
    place.indexed_job("FailureTarget")
    assert place.settle() == ["jobs"]
    place.source()
    assert place.settle() == ["configmaps", "jobs"]
    (owner,) = place.owners()
    assert (owner["apiVersion"], owner["kind"]) == ("batch/v1", "Job")


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_a_job_with_a_pod_that_has_started_stays(phase: str) -> None:
    place = Place()
    place.job()
    place.pod(phase)
    assert place.settle() == ["pods", "tfjobs"]


def test_a_job_of_somebody_else_or_of_a_submission_that_goes_on_stays() -> None:
    place = Place()
    place.job(owner="bob@laptop kernel 7")
    assert place.settle() == ["tfjobs"]
    place = Place(ago=NEW)
    place.job()
    assert place.settle() == ["tfjobs"]


def test_a_job_that_has_its_source_stays() -> None:
    place = Place()
    place.source()
    place.job()
    assert place.settle() == ["configmaps", "tfjobs"]


def test_a_kind_that_this_user_may_not_list_is_left_out() -> None:
    place = Place()
    place.job()
    assert KINDS == operator_v1.KINDS
    assert place.settle(refuses="pytorchjobs") == []
    assert place.shown
