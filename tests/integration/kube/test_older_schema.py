"""Jobs of an operator whose schema has no ``sleep`` in ``preStop``, on a server on the loopback."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from aiohttp import web

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import creation, source_owners
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.errors import Refused
from tests.helpers.api_objects import ApiObjects, Object, failure
from tests.integration.kube.test_responses import client
from tests.unit.backends.kubernetes.lifecycle.test_creation import JOBS, ROLE, WHOLE, made, owned

SLEEP = {"sleep": {"seconds": 5}}


def sleeping(name: str = "mnist", **more: Any) -> Objects:
    """A job whose containers sleep before they are stopped, but for one."""
    containers: list[Object] = [
        {"name": "tensorflow", "lifecycle": {"preStop": SLEEP}},
        {"name": "own", "lifecycle": {"preStop": SLEEP, "postStart": {"exec": {}}}},
        {"name": "other", "lifecycle": {"preStop": {"exec": {}}}},
    ]
    template = {"spec": {"containers": containers, **more}}
    objects = made()
    spec = {"tfReplicaSpecs": {"Worker": {"template": template}}}
    meta = {**objects.job["metadata"], "name": name}
    return Objects(objects.beside, {**objects.job, "metadata": meta, "spec": spec}, objects.path)


class Server:
    """An API server that drops fields which its schema lacks, or refuses them where it is asked to.

    Args:
        lacks: The fields: ``sleep`` of ``preStop``, or fields of a pod.
    """

    def __init__(self, *lacks: str, rules: tuple[Any, ...] = ()) -> None:
        self.objects = ApiObjects(*rules)
        self.lacks = lacks
        self.posted: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or "null")
        if request.method == "POST" and request.path == JOBS:
            strict = request.query.get("fieldValidation") == "Strict"
            self.posted.append("strict" if strict else "lax")
            if (unknown := self._dropped(body)) and strict:
                fields = ", ".join(f'unknown field "{one}"' for one in unknown)
                said = 'TFJob in version "v1" cannot be handled as a TFJob: strict decoding error'
                code, found = failure(400, "BadRequest", f"{said}: {fields}")
                return web.json_response(found, status=code)
        code, found = self.objects.answer(request.method, request.path, request.query, body)
        return web.json_response(found, status=code)

    def _dropped(self, body: Object) -> list[str]:
        at = "spec.tfReplicaSpecs.Worker.template.spec"
        pod = body["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
        found = [f"{at}.{one}" for one in self.lacks if pod.pop(one, None)]
        for number, container in enumerate(pod["containers"]):
            before = container.get("lifecycle", {}).get("preStop", {})
            if "sleep" in self.lacks and before.pop("sleep", None):
                found.append(f"{at}.containers[{number}].lifecycle.preStop.sleep")
        return found

    def lifecycles(self, name: str = "mnist") -> list[Any]:
        spec = self.objects.objects[f"{JOBS}/{name}"]["spec"]["tfReplicaSpecs"]["Worker"]
        return [one.get("lifecycle") for one in spec["template"]["spec"]["containers"]]

    def create(self, *jobs: Objects) -> None:
        async def main() -> None:
            async with client(self.answer) as api:
                for job in jobs:
                    await creation.create(Target(api, "team"), job, print)
                    await source_owners.wait_until_all_owned(60)

        asyncio.run(main())


AS_SENT = [
    {"preStop": SLEEP},
    {"preStop": SLEEP, "postStart": {"exec": {}}},
    {"preStop": {"exec": {}}},
]
WITHOUT = [None, {"postStart": {"exec": {}}}, {"preStop": {"exec": {}}}]


def test_a_current_operator_costs_no_further_request() -> None:
    server = Server()
    server.create(sleeping())
    assert server.posted == ["strict"]
    assert server.lifecycles() == AS_SENT


@pytest.mark.parametrize("rules", [(), ROLE], ids=["source-first", "job-first"])
def test_an_older_operator_gets_no_empty_hook(rules: tuple[Any, ...]) -> None:
    server, job = Server("sleep", rules=rules), sleeping()
    before = copy.deepcopy(job.job)
    server.create(job)
    assert server.posted == ["strict", "lax"]
    assert server.lifecycles() == WITHOUT
    assert server.objects.names() == WHOLE
    assert owned(server.objects)
    assert job.job == before


def test_the_answer_holds_for_the_next_job_of_that_kind() -> None:
    server, second = Server("sleep"), sleeping("again")
    server.create(sleeping(), Objects((), second.job, second.path))
    assert server.posted == ["strict", "lax", "lax"]
    assert server.lifecycles("again") == WITHOUT


def test_another_field_is_dropped_as_before() -> None:
    server = Server("resourceClaims")
    server.create(sleeping(resourceClaims=[{"name": "gpu"}]))
    assert server.posted == ["strict", "lax"]
    assert server.lifecycles() == AS_SENT


def test_a_job_without_a_hook_is_sent_as_before() -> None:
    server, job = Server("sleep"), sleeping()
    for one in job.job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]:
        one.pop("lifecycle")
    server.create(job)
    assert server.posted == ["lax"]


def test_another_refusal_is_the_error() -> None:
    server = Server()
    with pytest.raises(Refused, match="already exists"):
        server.create(sleeping(), sleeping())
    assert server.posted == ["strict"]
