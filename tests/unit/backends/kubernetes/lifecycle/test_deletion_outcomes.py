"""Who has deleted a job, what stays, and what is said where it cannot be deleted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.lifecycle import deletion, source_owners
from ciao_kernel.backends.kubernetes.lifecycle.deletion import Deletions
from ciao_kernel.errors import ClusterFault, Refused
from tests.unit.backends.kubernetes.lifecycle.test_deletion import JOB, OWNER, PATH, RUN

PODS = "/api/v1/namespaces/team/pods"
UNTOLD = (
    "the API server has not answered yet. Until then the job may keep running; "
    "`%ciao delete mine` asks again"
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_FIRST_LOOK", 0.01)


def job(uid: str = "u1", run: str = "run-1", **more: Any) -> Any:
    return {"metadata": {"name": "mine", "uid": uid, "annotations": {RUN: run}, **more}, "spec": {}}


def pod(name: str, owner: Any = OWNER, grace: Any = None) -> Any:
    spec = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    return {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}


class Server:
    """A client whose job goes when it is deleted; the pods go as :attr:`rounds` says.

    Args:
        item: The job's object, if it is there.
        rounds: The pods that each look finds; the last look repeats.
        faults: Errors by what is asked: ``find``, ``delete`` or ``list``.
    """

    def __init__(
        self, item: Any, *rounds: list[Any], faults: dict[str, Exception] | None = None
    ) -> None:
        self.item, self.rounds, self.faults = item, rounds or ([],), faults or {}
        self.looks, self.asked = 0, dict[str, str]()
        self.at_find: Callable[[], None] = lambda: None
        self.deleted = False

    def _fail(self, what: str) -> None:
        if what in self.faults:
            raise self.faults[what]

    async def find(self, path: str) -> Any:
        self.at_find()
        self._fail("look" if self.deleted else "find")
        return self.item if path == PATH else None

    async def delete(self, path: str, *, uid: str) -> bool:
        self._fail("delete")
        assert (path, uid) == (PATH, self.item["metadata"]["uid"])
        self.item, self.deleted = None, True
        return True

    async def get(self, path: str, **query: str) -> Any:
        self._fail("list")
        assert path == PODS
        self.asked = query
        self.looks += 1
        return {"items": self.rounds[min(self.looks, len(self.rounds)) - 1]}


def removed(server: Server, job: Any = JOB, **how: Any) -> tuple[bool, list[str]]:
    """Return whether this user has deleted the job, and what was said to be left of it."""

    async def main() -> tuple[bool, list[str]]:
        work, said = Deletions(), list[str]()
        client: Any = server
        async with asyncio.timeout(20):
            tell = lambda: said.append(work.left(job))  # noqa: E731
            try:
                return await work.remove(client, job, PATH, tell, **how), said
            finally:
                assert work.left(job) == ""
                assert work.names("team") == set()

    return asyncio.run(main())


def test_who_deletes_a_job_first_has_deleted_it() -> None:
    assert removed(Server(job())) == (True, ["it is deleted"])
    assert removed(Server(job(deletionTimestamp="now")))[0] is False
    assert removed(Server(None))[0] is False
    assert removed(Server(job()), replace(JOB, uid=""))[0] is True


def test_a_later_job_of_the_same_name_stays() -> None:
    """Its pods have the same labels, and are not waited for."""
    other = pod("mine-worker-0", {"uid": "u2", "controller": True})
    server = Server(job("u2", "run-2"), [pod("mine-worker-0"), other], [other])
    ours, said = removed(server)
    assert not ours
    assert server.item is not None
    assert server.looks == 2
    assert said[0] == "it is deleted, and Kubernetes is removing pod mine-worker-0"
    assert server.asked == {"labelSelector": job_metadata.selector(JOB), "limit": "100"}


@pytest.mark.parametrize("item", [None, job(deletionTimestamp="now")])
def test_a_caller_that_only_wants_to_be_first_waits_for_nothing(item: Any) -> None:
    server = Server(item, [pod("mine-worker-0")])
    assert removed(server, first_only=True) == (False, [])
    assert server.looks == 0
    server = Server(job(), [pod("mine-worker-0")], [])
    assert removed(server, first_only=True)[0]
    assert server.looks == 2


def test_a_job_whose_deletion_nobody_has_accepted_is_known_by_its_place_and_name() -> None:
    work, server = Deletions(), Server(job())
    other = replace(JOB, name="other")

    def check() -> None:
        assert server.deleted or work.left(JOB) == UNTOLD
        assert work.left(other) == work.left(replace(JOB, uid="u2")) == ""
        assert work.names("team") == {"mine"}
        assert work.names("elsewhere") == set()
        assert work.ends("team", "mine")
        assert not work.ends("team", "other")

    server.at_find = check
    client: Any = server
    asyncio.run(work.remove(client, JOB, PATH, lambda: None))
    assert not work.ends("team", "mine")


def test_a_new_job_waits_for_the_name_of_one_that_is_being_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(patience: float) -> bool:
        """Return whether the name was free after the wait."""
        monkeypatch.setattr(deletion, "_USUAL", patience)
        work = Deletions()
        client: Any = Server(job(), *[[pod("mine-worker-0")]] * 3, [])
        async with asyncio.timeout(20):
            removing = asyncio.create_task(work.remove(client, JOB, PATH, lambda: None))
            await asyncio.sleep(0)
            assert work.ends("team", "mine")
            await work.wait_until_deleted("team", "other")
            assert not removing.done()
            await work.wait_until_deleted("team", "mine")
            free = removing.done()
            await removing
        return free

    assert asyncio.run(main(15.0))
    assert not asyncio.run(main(0.0))


def test_a_sentence_names_three_pods() -> None:
    names = [f"mine-worker-{n}" for n in range(4)]
    pods = [pod(name) for name in names]
    _, said = removed(Server(job(), pods, pods[:3], []))
    three = "pod mine-worker-0, pod mine-worker-1, pod mine-worker-2"
    assert said[:2] == [
        f"it is deleted, and Kubernetes is removing {three}, other pods",
        f"it is deleted, and Kubernetes is removing {three}",
    ]


def test_the_api_server_is_asked_less_often_the_longer_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "_FIRST_LOOK", 0.02)
    until = time.monotonic() + 0.3

    class Slow(Server):
        async def get(self, path: str, **query: str) -> Any:
            found = await super().get(path, **query)
            return found if time.monotonic() < until else {"items": []}

    server = Slow(job(), [pod("mine-worker-0")])
    removed(server)
    assert 2 <= server.looks <= 9


def test_nothing_is_reported_after_a_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "_NAMING", 0.05)

    async def main() -> list[str]:
        work, said = Deletions(), list[str]()
        client: Any = Server(job())
        await work.remove(client, JOB, PATH, lambda: said.append(work.left(JOB)))
        await asyncio.sleep(0.1)
        return said

    assert "" not in asyncio.run(main())


def test_the_sources_of_a_job_that_was_just_submitted_go_with_it() -> None:
    """Kubernetes removes them only once the job owns them."""
    server = Server(job())

    class Slow:
        async def patch(self, path: str, body: Any) -> None:
            await asyncio.sleep(0.05)
            assert (path, server.looks) == ("/source", 0)
            owned.append(path)

    async def main() -> None:
        target: Any = SimpleNamespace(client=Slow(), namespace="team")
        source = source_owners.Source("/source", "s1")
        source_owners.claim_later(target, {"uid": "u1", "name": "mine"}, [source], lambda _: None)
        client: Any = server
        await Deletions().remove(client, JOB, PATH, lambda: None)

    owned: list[str] = []
    asyncio.run(main())
    assert owned == ["/source"]


@pytest.mark.parametrize("what", ["find", "delete"])
def test_a_job_that_could_not_be_deleted_may_run_on(what: str) -> None:
    with pytest.raises(ClusterFault) as caught:
        removed(Server(job(), faults={what: ClusterFault("no answer.")}))
    assert caught.value.message == "no answer."
    assert caught.value.hint == "It may still run; `%ciao delete mine` tries again."


@pytest.mark.parametrize("what", ["look", "list"])
def test_a_deleted_job_whose_end_cannot_be_seen_is_still_deleted(what: str) -> None:
    with pytest.raises(ClusterFault) as caught:
        removed(Server(job(), faults={what: ClusterFault("no answer.")}))
    assert caught.value.message == "it is deleted, but its end is not confirmed: no answer."
    assert caught.value.hint == "`%ciao describe mine` checks it."


def test_who_may_delete_a_job_need_not_be_allowed_to_list_its_pods() -> None:
    assert removed(Server(job(), faults={"list": Refused("forbidden", code=403)}))[0]
    with pytest.raises(Refused, match="too large"):
        removed(Server(job(), faults={"list": Refused("too large", code=413)}))


def test_pods_may_use_their_whole_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest of all, also if its pod is gone first."""
    monkeypatch.setattr(deletion, "_GONE", 0.02)
    slow, odd = pod("mine-worker-0", grace=20), pod("mine-worker-1", grace="20")
    removed(Server(job(), [slow, odd], [odd], [odd], [odd], []))
    with pytest.raises(ClusterFault, match="still exist: pod mine-worker-1") as caught:
        removed(Server(job(), [odd]))
    assert caught.value.hint == "Kubernetes removes them when their nodes answer."


@pytest.mark.parametrize(
    ("owners", "looks"),
    [
        ([{"uid": "u1"}], 3),
        ([{"uid": "u0"}, {"uid": "u1"}], 3),
        ([{"uid": "u2"}], 1),
        ([], 1),  # Kubernetes does not remove it
    ],
)
def test_what_a_job_owned_is_waited_for_though_its_object_is_gone(
    owners: list[Any], looks: int
) -> None:
    """A retry still has the objects of its first try."""
    volumes = [{"configMap": {"name": "mine-1"}}]
    template = {"spec": {"template": {"spec": {"volumes": volumes}}}}
    made = {**job(), **template, "apiVersion": "batch/v1", "kind": "Job"}

    class Owned(Server):
        looks_at_map = 0

        async def find(self, path: str) -> Any:
            if path != "/api/v1/namespaces/team/configmaps/mine-1":
                return await super().find(path)
            self.looks_at_map += 1
            meta = {"name": "mine-1", "ownerReferences": owners, "annotations": {RUN: "run-1"}}
            return {"metadata": meta} if self.looks_at_map < 3 else None

    server = Owned(None)
    known = SimpleNamespace(job=made, holder=made)
    _, said = removed(server, replace(JOB, resource="jobs"), known=known)
    assert server.looks_at_map == looks
    removing = "it is deleted, and Kubernetes is removing ConfigMap mine-1"
    assert said[0] == (removing if looks == 3 else "it is deleted")


@pytest.mark.parametrize(
    ("what", "fault", "told"),
    [
        ("delete", ClusterFault("no answer."), 1),
        ("delete", Refused("no backend.", code=503), 1),
        ("delete", Refused("forbidden.", code=403), 0),
        ("find", ClusterFault("no answer."), 0),
        ("look", ClusterFault("no answer."), 0),
    ],
)
def test_a_lost_answer_to_a_deletion_is_told(what: str, fault: Exception, told: int) -> None:
    async def work(item: Any) -> int:
        lost: list[int] = []
        server: Any = Server(item, faults={what: fault})
        with pytest.raises(type(fault)):
            await Deletions().remove(
                server, JOB, PATH, lambda: None, uncertain=lambda: lost.append(1)
            )
        return len(lost)

    assert asyncio.run(work(job())) == told
    if what == "delete":  # somebody else has deleted it
        assert asyncio.run(work(job(deletionTimestamp="2026-01-01T00:00:05Z"))) == 0
