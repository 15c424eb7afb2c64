"""A job is created as a whole or not at all, whichever request fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata, trainer
from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.lifecycle import creation, source_owners
from ciao_kernel.backends.kubernetes.manifests.job_objects import Objects
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.model import Event, Notice
from tests.helpers.api_objects import ApiObjects, Object

JOBS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
TRAINER = "trainer.kubeflow.org"
MAPS = "/api/v1/namespaces/team/configmaps"
WHOLE = ["configmaps/mnist-1", "configmaps/mnist-2", "tfjobs/mnist"]
ROLE = (
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]},
)
"""Without the optional rights."""
ORDERS = pytest.mark.parametrize("rules", [(), ROLE], ids=["source-first", "job-first"])


def made(sources: int = 2, run: str = "run-1") -> Objects:
    """A job and its sources."""
    meta = {"namespace": "team", "annotations": {job_metadata.RUN: run}}
    labels = {"labels": job_metadata.labels("mnist")}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist", **meta}}
    beside = tuple(
        {"apiVersion": "v1", "kind": "ConfigMap",
         "metadata": {"name": f"mnist-{number + 1}", **labels, **meta}}
        for number in range(sources)
    )  # fmt: skip
    return Objects(beside, {**job, "spec": {}}, JOBS)


class Client:
    """A client without a network.

    Args:
        server: its objects.
        before: called before each request with its method and path; it may raise.
        after: the same after each request, whose answer is then lost.
    """

    Hook = Callable[[str, str], Any]

    def __init__(
        self,
        server: ApiObjects,
        before: Hook = lambda method, path: None,
        after: Hook = lambda method, path: None,
    ) -> None:
        self.server, self.before, self.after = server, before, after
        self.retry_reason = ""
        self.asked: list[str] = []

    async def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        self.asked.append(f"{method} {path.rpartition('/')[2]}")
        await asyncio.sleep(0)
        self.before(method, path)
        code, found = self.server.answer(method, path, {}, body)
        self.after(method, path)
        if code >= 300:
            raise Refused(found["message"], code=code, reason=found["reason"])
        return found

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, body)

    async def known(self, path: str, body: Object) -> Object:
        return self.server.answer("POST", path, {}, body)[1]

    async def patch(self, path: str, body: Object) -> Object:
        return await self._call("PATCH", path, body)

    async def find(self, path: str) -> Object | None:
        try:
            return await self._call("GET", path)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    async def delete(self, path: str, *, uid: str) -> None:
        await self._call("DELETE", path, {"preconditions": {"uid": uid}})


def created(client: Client, what: Objects, shown: list[Event] | None = None) -> str:
    target = Target(client, "team")  # type: ignore[arg-type]
    emit = (shown if shown is not None else []).append

    async def create() -> Object:
        job = await creation.create(target, what, emit)
        await source_owners.wait_until_all_owned(10)
        return job

    return str(asyncio.run(create())["metadata"]["uid"])


def owned(server: ApiObjects) -> bool:
    """Whether the job owns all its sources, and no source is marked as without an owner."""
    uid = server.objects[f"{JOBS}/mnist"]["metadata"]["uid"]
    metas = [item["metadata"] for path, item in server.objects.items() if MAPS in path]
    marked = any(job_metadata.UNOWNED in meta["labels"] for meta in metas)
    return not marked and all(meta["ownerReferences"][0]["uid"] == uid for meta in metas)


def test_a_job_whose_runtime_is_not_seen_yet_is_created_a_moment_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(creation, "_EVERY", 0.0)
    asked: list[str] = []

    def before(method: str, path: str) -> None:
        if method == "POST" and path == JOBS:
            asked.append(path)
            if len(asked) < 3:
                text = f"denied: specified trainingRuntime {trainer.RUNTIME_FIRST}"
                raise Refused(text, "", code=403, reason="Forbidden")

    server = ApiObjects()
    created(Client(server, before), made(1))
    assert len(asked) == 3
    assert len(server.names()) == 2


@ORDERS
@pytest.mark.parametrize("sources", [0, 1, 2])
def test_the_job_owns_its_sources(rules: tuple[Object, ...], sources: int) -> None:
    server = ApiObjects(*rules)
    assert (
        created(Client(server), made(sources))
        == (server.objects[f"{JOBS}/mnist"]["metadata"]["uid"])
    )
    assert len(server.names()) == 1 + sources
    assert owned(server)


def with_service() -> Objects:
    """An Indexed Job: a source, and the Service of its replicas' names."""
    what = made(1)
    service = {**what.beside[0], "kind": "Service"}
    service["metadata"] = {**service["metadata"], "name": "mnist"}
    return Objects((*what.beside, service), what.job, what.path)


@ORDERS
def test_a_service_belongs_to_the_job_without_a_right_to_change_it(
    rules: tuple[Object, ...],
) -> None:
    more = {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "get"]}
    server = ApiObjects(*rules, *([more] if rules else []))
    client = Client(server)
    created(client, with_service())
    order = [one for one in client.asked if one.startswith("POST")]
    assert order.index("POST services") < order.index(
        "POST tfjobs" if not rules else "POST configmaps"
    )
    assert "PATCH mnist" not in client.asked
    assert owned(server)
    server.answer("DELETE", f"{JOBS}/mnist", {}, None)
    assert server.names() == []


@pytest.mark.parametrize("failing", ["services", "tfjobs"])
def test_a_refused_part_leaves_no_service(failing: str) -> None:
    def refuse(method: str, path: str) -> None:
        if method == "POST" and path.endswith(failing):
            raise Refused("no", code=403)

    server = ApiObjects()
    with pytest.raises(Refused):
        created(Client(server, refuse), with_service())
    assert server.names() == []


def with_runtime() -> Objects:
    """A TrainJob: a source, and the runtime that Trainer asks for before it takes the job."""
    what = made(1)
    runtime = {**what.beside[0], "kind": "TrainingRuntime", "apiVersion": f"{TRAINER}/v1alpha1"}
    runtime["metadata"] = {**runtime["metadata"], "name": "mnist-run"}
    return Objects((*what.beside, runtime), what.job, what.path)


def test_a_runtime_exists_before_its_job_and_ends_with_it() -> None:
    server = ApiObjects()
    client = Client(server)
    created(client, with_runtime())
    order = [one for one in client.asked if one.startswith("POST")]
    assert order == ["POST configmaps", "POST trainingruntimes", "POST tfjobs"]
    runtimes = f"/apis/{TRAINER}/v1alpha1/namespaces/team/trainingruntimes"
    (owner,) = server.objects[f"{runtimes}/mnist-run"]["metadata"]["ownerReferences"]
    assert owner["uid"] == server.objects[f"{MAPS}/mnist-1"]["metadata"]["uid"]
    assert owned(server)
    server.answer("DELETE", f"{JOBS}/mnist", {}, None)
    assert server.names() == []


@pytest.mark.parametrize("failing", ["trainingruntimes", "tfjobs"])
def test_a_refused_part_leaves_no_runtime(failing: str) -> None:
    def refuse(method: str, path: str) -> None:
        if method == "POST" and path.endswith(failing):
            raise Refused("no", code=403)

    server = ApiObjects()
    with pytest.raises(Refused):
        created(Client(server, refuse), with_runtime())
    assert server.names() == []


def test_pods_never_wait_for_a_source_that_is_not_there_yet() -> None:
    client = Client(ApiObjects())
    created(client, made(1))
    assert client.asked == ["POST configmaps", "POST tfjobs", "PATCH mnist-1"]


def test_a_right_that_is_missing_changes_the_order_only() -> None:
    client = Client(ApiObjects(*ROLE))
    created(client, made(1))
    assert client.asked == ["POST tfjobs", "POST configmaps"]


def test_what_nobody_would_look_for_is_created_after_the_job() -> None:
    what, server = made(1), ApiObjects()
    what.beside[0]["kind"] = "Secret"
    client = Client(server)
    created(client, what)
    assert client.asked == ["POST tfjobs", "POST secrets"]


FAULTS = [Refused("no", code=403), ClusterFault("away"), asyncio.CancelledError()]


@ORDERS
@pytest.mark.parametrize("lost", [False, True], ids=["not done", "answer lost"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("number", range(4))
def test_whatever_fails_nothing_is_left(
    rules: tuple[Object, ...], fault: BaseException, lost: bool, number: int
) -> None:
    """Each request fails once: before it reached the server, or before its answer came."""
    server, shown, count = ApiObjects(*rules), list[Event](), iter(range(99))

    def fail(method: str, path: str) -> None:
        if method == "POST" and next(count) == number:
            raise fault

    client = Client(server, **{"after" if lost else "before": fail})
    if number >= 3:
        created(client, made())
        assert server.names() == WHOLE
        return
    with pytest.raises(type(fault)):
        created(client, made(), shown)
    assert server.names() == []
    assert shown == []


@ORDERS
@pytest.mark.parametrize("number", range(4))
def test_an_interrupt_leaves_nothing(rules: tuple[Object, ...], number: int) -> None:
    """The cell is cancelled while a request is on its way, which nothing takes back."""
    server, count = ApiObjects(*rules), iter(range(99))

    async def main() -> None:
        def interrupt(method: str, path: str) -> None:
            if method == "POST" and next(count) == number:
                work.cancel()

        target = Target(Client(server, interrupt), "team")  # type: ignore[arg-type]
        work = asyncio.ensure_future(creation.create(target, made(), print))
        await asyncio.wait({work})
        # The last request may be answered before the interrupt is noticed.
        assert work.cancelled() or server.names() == WHOLE
        await source_owners.wait_until_all_owned(10)

    asyncio.run(main())
    assert server.names() in ([], WHOLE)
    if number < 2:
        assert server.names() == []


@pytest.mark.parametrize("lost", [False, True], ids=["not done", "answer lost"])
@pytest.mark.parametrize("number", range(2))
def test_a_job_runs_even_if_it_cannot_own_its_sources(number: int, lost: bool) -> None:
    """The cell says so, and says what removes them; the next kernel sets the owner (unfinished)."""
    server, shown, count = ApiObjects(), list[Event](), iter(range(99))

    def refuse(method: str, path: str) -> None:
        if method == "PATCH" and next(count) == number:
            raise ClusterFault("the API server is away.")

    client = Client(server, **{"after" if lost else "before": refuse})
    created(client, made(), shown)
    assert server.names() == WHOLE
    (said,) = shown
    assert isinstance(said, Notice)
    assert f"its ConfigMap mnist-{number + 1} yet: the API server is away." in said.text
    assert "`%ciao delete mnist --namespace team` removes both" in said.text
    marked = [path for path, item in server.objects.items()
              if job_metadata.UNOWNED in item["metadata"].get("labels", {})]  # fmt: skip
    first = number + int(lost)
    assert marked == [f"{MAPS}/mnist-{at + 1}" for at in range(first, 2)]


@pytest.mark.parametrize("code", [404, 409])
def test_a_source_that_is_gone_needs_no_owner(code: int) -> None:
    def gone(method: str, path: str) -> None:
        if method == "PATCH":
            raise Refused("gone", code=code)

    shown: list[Event] = []
    created(Client(ApiObjects(), gone), made(1), shown)
    assert shown == []


def test_a_cell_does_not_wait_for_the_owner_of_its_source() -> None:
    """A removal does, and so does the end of the connections."""
    answered, order = asyncio.Event(), list[str]()

    class Slow(Client):
        async def patch(self, path: str, body: Object) -> Object:
            await answered.wait()
            order.append("owned")
            return await super().patch(path, body)

    async def main() -> None:
        server = ApiObjects()
        target = Target(Slow(server), "team")  # type: ignore[arg-type]
        job = await creation.create(target, made(1), print)
        order.append("created")
        uid = job["metadata"]["uid"]
        removal = asyncio.ensure_future(source_owners.wait_until_owned(uid))
        await source_owners.wait_until_owned("another job's")
        await source_owners.wait_until_all_owned(0.01)
        assert not removal.done()
        answered.set()
        await removal
        assert owned(server)
        await source_owners.wait_until_owned(uid)

    asyncio.run(main())
    assert order == ["created", "owned"]


def test_a_job_of_somebody_else_keeps_its_name_and_its_source() -> None:
    server = ApiObjects()
    created(Client(server), made(1, "theirs"))
    with pytest.raises(Refused, match="already exists"):
        created(Client(server), made(1, "ours"))
    assert server.names() == ["configmaps/mnist-1", "tfjobs/mnist"]
    assert owned(server)


def test_a_source_that_cannot_be_removed_is_named() -> None:
    def refuse(method: str, path: str) -> None:
        if method == "DELETE" or path == JOBS:
            raise Refused("you may not", code=403)

    shown: list[Event] = []
    with pytest.raises(Refused):
        created(Client(ApiObjects(), refuse), made(1), shown)
    assert "the ConfigMap mnist-1 could not be removed" in str(shown)
    assert "kubectl delete configmap mnist-1 -n team" in str(shown)
