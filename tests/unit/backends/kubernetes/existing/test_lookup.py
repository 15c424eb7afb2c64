"""Finding jobs without a cluster: long lists, what this machine remembers, words for commands."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.cluster.paging import pages
from ciao_kernel.backends.kubernetes.cluster.target import Target, Targets
from ciao_kernel.backends.kubernetes.existing.lookup import Lookup
from ciao_kernel.backends.kubernetes.existing.submissions import Submissions
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, NoSuchJob, Refused
from ciao_kernel.kube.server_clock import ServerClock
from ciao_kernel.model import ClusterSpec, Job
from ciao_kernel.model.queries import Where


class Server:
    """Answers lists of numbers in pages; `too_old` is the page whose token has expired."""

    def __init__(self, count: int, too_old: int = 0) -> None:
        self.count, self.too_old = count, too_old
        self.asked: list[dict[str, str]] = []

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        self.asked.append(query)
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "100000"))
        if self.too_old and start == self.too_old:
            raise Refused("The provided continue parameter is too old", code=410, reason="Expired")
        items = [{"n": number} for number in range(start, min(self.count, start + limit))]
        more = {"continue": str(start + limit)} if start + limit < self.count else {}
        return {"items": items, "metadata": more}


def listed(server: Server) -> list[int]:
    found = asyncio.run(pages(server, "/pods", "app=ciao"))  # type: ignore[arg-type]
    return [item["n"] for item in found]


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 2600])
def test_long_lists_come_in_pages(count: int) -> None:
    server = Server(count)
    assert listed(server) == list(range(count))
    assert all(query["labelSelector"] == "app=ciao" for query in server.asked)
    assert len(server.asked) == max(1, -(-count // 500))


def test_a_list_that_grew_too_old_is_read_at_once() -> None:
    server = Server(2600, too_old=1000)
    assert listed(server) == list(range(2600))
    assert len(server.asked) == 4


JOB = Job("mnist", "kubernetes", "tensorflow", (), 0.0, "team-b", uid="0123456789ab")


def test_places_of_jobs_are_remembered_until_their_jobs_are_gone(tmp_path: Path) -> None:
    places = Submissions(tmp_path)
    assert places.known() == []
    places.remember(JOB, "staging")
    (place,) = places.known("mnist")
    assert (place.context, place.namespace) == ("staging", "team-b")
    assert place.holds(JOB)
    assert places.known() == [place]
    assert places.known("mnis") == places.known("mnist-2") == []
    (places.folder(JOB) / "worker-0.log").write_text("kept")
    places.forget(place)
    assert places.known() == []
    assert (places.folder(JOB) / "worker-0.log").read_text() == "kept"


def test_logs_that_a_job_has_left_here_are_those_of_its_place(tmp_path: Path) -> None:
    places = Submissions(tmp_path)
    assert places.kept("mnist", "staging", "team-b") is None
    places.remember(JOB, "staging")
    assert places.kept("mnist", "staging", "team-b") is None, "it has written nothing"
    (places.folder(JOB) / "worker-0.log").write_text("kept")
    assert places.kept("mnist", "staging", "team-b") == places.folder(JOB)
    assert places.kept("mnist", "production", "team-b") is None, "it may run there"
    assert places.kept("mnist", "staging", "team-a") is None
    (place,) = places.known()
    places.forget(place)
    assert places.kept("mnist", "staging", "team-b") == places.folder(JOB)
    later = replace(JOB, uid="ba9876543210")
    places.remember(later, "staging")
    (places.folder(later) / "worker-0.log").write_text("newer")
    os.utime(places.folder(JOB), (1.0, 1.0))
    assert places.kept("mnist", "staging", "team-b") == places.folder(later)


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", "\x00"])
def test_a_broken_note_is_none(tmp_path: Path, text: str) -> None:
    places = Submissions(tmp_path)
    places.remember(JOB, "")
    (places.folder(JOB) / "place.json").write_text(text)
    assert places.known() == []


def test_a_note_of_an_older_version_lacks_the_kind(tmp_path: Path) -> None:
    places = Submissions(tmp_path)
    places.remember(replace(JOB, resource="jobs"), "")
    assert [place.resource for place in places.known()] == ["jobs"]
    (places.folder(JOB) / "place.json").write_text('{"context": "staging"}')
    assert [(place.context, place.resource) for place in places.known()] == [("staging", "")]


@pytest.mark.parametrize("name", ["*", "../x", "[", "a/b", "m?ist"])
def test_an_odd_name_is_found_nowhere(tmp_path: Path, name: str) -> None:
    places = Submissions(tmp_path)
    places.remember(JOB, "")
    assert places.known(name) == []
    (places.folder(JOB) / "worker-0.log").touch()
    assert places.kept(name, "", JOB.place) is None


@pytest.mark.parametrize(
    ("context", "namespace", "words"),
    [
        ("", "team-a", ""),
        ("", "team-b", "--namespace team-b"),
        ("staging", "team-a", "--context staging"),
        ("staging", "team-b", "--namespace team-b --context staging"),
        ("unopened", "team-a", "--namespace team-a --context unopened"),
        ("an odd one", "x", "--namespace x --context 'an odd one'"),
    ],
)
def test_a_command_says_what_it_must(context: str, namespace: str, words: str) -> None:
    async def load(name: str) -> Any:
        return SimpleNamespace(namespace="team-a", context=name or "first", source="")

    async def main() -> str:
        targets = Targets(Settings(), load)
        await targets.of()
        await targets.of(ClusterSpec(context="staging"))
        return targets.options(context, namespace)

    assert asyncio.run(main()) == words


def test_a_caller_with_little_time_leaves_the_sign_in_to_the_others() -> None:
    async def main() -> None:
        may, asked = asyncio.Event(), []

        async def load(name: str) -> Any:
            asked.append(name)
            await may.wait()
            if len(asked) == 1:
                raise ClusterFault("no such user")
            return SimpleNamespace(namespace="team-a", context=name, source="")

        targets = Targets(Settings(), load)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await targets.of()
        asking = [asyncio.create_task(targets.of()) for _ in range(3)]
        await asyncio.sleep(0)
        may.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert ([str(one) for one in found], len(asked)) == (["no such user"] * 3, 1)
        assert (await targets.of()).client is (await targets.of()).client
        assert len(asked) == 2, "a fault is not kept"
        await targets.close()

    asyncio.run(main())


class Kinds:
    """Serves some kinds of the operator, and answers no request for a job before all have come."""

    def __init__(self, answers: dict[str, dict[str, Any] | Refused]) -> None:
        self.answers = answers
        self.all_asked = asyncio.Event()
        self.asked: list[str] = []

    async def known(self, path: str) -> dict[str, Any]:
        served = list(self.answers) if path == apis.OPERATOR_V1.path else []
        return {"resources": [{"name": name} for name in served]}

    async def find(self, path: str) -> dict[str, Any] | None:
        kind = path.split("/")[-2]
        self.asked.append(kind)
        if len(self.asked) == len(self.answers) + len(apis.JOB.plurals):
            self.all_asked.set()
        await self.all_asked.wait()
        answer = self.answers.get(kind)
        if isinstance(answer, Refused):
            raise answer
        return answer or None


async def found(kinds: Kinds) -> list[str]:
    async with asyncio.timeout(60):
        target = Target(kinds, "team")  # type: ignore[arg-type]
        return [path async for path, _ in target.find("mnist")]


def test_all_kinds_are_asked_for_a_name_at_once() -> None:
    denied = Refused("no", code=403)
    kinds = Kinds({"pytorchjobs": denied, "tfjobs": {"metadata": {"name": "mnist"}}})
    at = "/apis/kubeflow.org/v1/namespaces/team/tfjobs/mnist"
    assert asyncio.run(found(kinds)) == [at]


def test_a_kind_that_cannot_be_asked_is_said() -> None:
    kinds = Kinds({"pytorchjobs": Refused("etcd is away", code=500), "tfjobs": {}})
    with pytest.raises(Refused, match="etcd is away"):
        asyncio.run(found(kinds))


class Closed:
    """Serves kinds by their paths, of which this user may list none."""

    access = SimpleNamespace(source="the kubeconfig", context="")
    clock = ServerClock()

    def __init__(self, served: dict[str, str]) -> None:
        self._served = served

    async def known(self, path: str) -> dict[str, Any]:
        return {"resources": [{"name": self._served[path]}] if path in self._served else []}

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        raise Refused("forbidden", code=403)


@pytest.mark.parametrize(
    ("api", "kind", "right"),
    [
        (apis.OPERATOR_V1, "tfjobs", "list tfjobs of kubeflow.org"),
        (apis.TRAINER, "trainjobs", "list trainjobs of trainer.kubeflow.org"),
        (apis.MPI_OPERATOR, "mpijobs", "list mpijobs of kubeflow.org"),
    ],
)
def test_a_missing_right_to_list_jobs_is_no_empty_list(
    tmp_path: Path, api: apis.Api, kind: str, right: str
) -> None:
    target = Target(Closed({api.path: kind}), "team")  # type: ignore[arg-type]

    async def at(where: Where) -> Target:
        return target

    lookup = Lookup(SimpleNamespace(at=at), Submissions(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(ClusterFault, match=f"you lack the right to {right}"):
        asyncio.run(lookup.jobs(Where(namespace="team")))


def test_without_an_operator_no_right_to_list_is_needed(tmp_path: Path) -> None:
    async def at(where: Where) -> Target:
        return Target(Closed({}), "team")  # type: ignore[arg-type]

    lookup = Lookup(SimpleNamespace(at=at), Submissions(tmp_path))  # type: ignore[arg-type]
    assert asyncio.run(lookup.jobs(Where())) == []


class Empty(Closed):
    """A server without any job that this user may see."""

    def __init__(self) -> None:
        super().__init__({})

    async def find(self, path: str) -> dict[str, Any] | None:
        return None


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (Where(), True),
        (Where(namespace="team-b"), True),
        (Where(namespace="team-a"), False),
    ],
)
def test_a_job_that_is_gone_is_told_with_the_logs_that_it_has_left(
    tmp_path: Path, where: Where, told: bool
) -> None:
    """As after the stop button, which deletes it; the settings name another namespace."""

    async def at(asked: Where) -> Target:
        return Target(Empty(), asked.namespace or "team-a")  # type: ignore[arg-type]

    places = Submissions(tmp_path)
    places.remember(JOB, "")
    kept = places.folder(JOB)
    (kept / "worker-0.log").write_text("kept")
    lookup = Lookup(SimpleNamespace(at=at), places)  # type: ignore[arg-type]
    with pytest.raises(NoSuchJob) as caught:
        asyncio.run(lookup.find("mnist", where))
    assert caught.value.existed is told
    assert ("no longer on the cluster" in caught.value.message) is told
    assert (f"its logs are in {kept}." in caught.value.message) is told
    assert "there is no job" in caught.value.message or told
