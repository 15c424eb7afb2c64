"""The place of a job in its queue, as Kueue tells it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.states import queue_place
from ciao_kernel.backends.kubernetes.states.queue_place import QueuePlace
from ciao_kernel.errors import ClusterFault, Refused
from ciao_kernel.model import Job, Replica

JOB = Job("mnist", "kubernetes", "tensorflow", (Replica("worker", 0),), 0.0, "team")


def pending(uid: str, own: Any, of_all: Any) -> Any:
    meta = {"name": f"tfjob-{uid}", "ownerReferences": [{"kind": "TFJob", "uid": uid}]}
    return {"metadata": meta, "positionInLocalQueue": own, "positionInClusterQueue": of_all}


class Server:
    """Answers for the queue ``team``, as often as it is asked.

    Args:
        answers: A list of waiting jobs, or an error, for each request; the last one stays.
        versions: Those of the API; none: it is not served.
        may: Whether the user may read places.
    """

    def __init__(
        self, *answers: Any, versions: tuple[str, ...] = ("v1beta2", "v1beta1"), may: bool = True
    ) -> None:
        self.answers, self.versions, self.may = list(answers), versions, may
        self.asked: list[str] = []
        self.looked = 0

    async def known(self, path: str, body: Any = None) -> Any:
        if path == "/apis/visibility.kueue.x-k8s.io":
            self.looked += 1
            if not self.versions:
                raise Refused("not found", "", code=404, reason="NotFound")
            return {"versions": [{"version": one} for one in self.versions]}
        assert path.endswith("selfsubjectrulesreviews")
        group, resource = queue_place.GROUP, "localqueues/pendingworkloads"
        rule = {"verbs": ["get"], "apiGroups": [group], "resources": [resource]}
        return {"status": {"incomplete": False, "resourceRules": [rule] if self.may else []}}

    async def text(self, path: str) -> bytes:
        self.asked.append(path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps({"items": answer}).encode()


def told(server: Server, looks: int = 1, *, later: bool = True) -> tuple[list[str], int]:
    """The texts after several looks, and how often a change was reported."""

    async def main() -> tuple[list[str], int]:
        changes: list[None] = []
        client: Any = server
        place = QueuePlace(client, JOB, lambda: changes.append(None))
        texts = []
        for _ in range(looks):
            if later:
                place._asked = 0.0
            place.ask("team", "j")
            if place._asking:
                await place._asking
            texts.append(place.text)
        await place.close()
        return texts, len(changes)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("own", "of_all", "text"),
    [
        (0, 0, "1st in line"),
        (2, 2, "3rd in line"),
        (2, 6, "3rd in line (7th with the other queues that share its quota)"),
        (2, None, "3rd in line"),
        ("2", 2, ""),
        (-1, 2, ""),
        (True, 2, ""),
    ],
)
def test_the_place_is_that_of_the_job_with_this_uid(own: Any, of_all: Any, text: str) -> None:
    answer = {"items": [pending("i", 0, 0), pending("j", own, of_all), pending("k", 3, 3)]}
    assert queue_place.words(answer, "j") == text


def test_a_job_that_is_not_listed_and_odd_answers_have_no_place() -> None:
    odd = {"items": [{}, {"metadata": {"ownerReferences": "x"}}, pending("i", 0, 0)]}
    assert queue_place.words(odd, "j") == ""


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"),
        (13, "13th"), (21, "21st"), (112, "112th"), (1001, "1,001st"),
    ],
)  # fmt: skip
def test_ordinals(number: int, text: str) -> None:
    assert queue_place.ordinal(number) == text


def test_a_change_is_reported_and_an_equal_answer_is_not() -> None:
    server = Server([pending("j", 1, 1)], [pending("j", 1, 1)], [pending("j", 0, 0)], [])
    texts, changes = told(server, 4)
    assert texts == ["2nd in line", "2nd in line", "1st in line", ""]
    assert changes == 3
    assert set(server.asked) == {
        "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/team/pendingworkloads"
    }


def test_many_looks_in_a_row_ask_once() -> None:
    server = Server([pending("j", 1, 1)])
    told(server, 20, later=False)
    assert len(server.asked) == 1


def test_an_older_version_is_asked_where_there_is_no_newer_one() -> None:
    server = Server([pending("j", 0, 0)], versions=("v1beta1", "v1alpha1"))
    assert told(server)[0] == ["1st in line"]
    assert "/v1beta1/" in server.asked[0]


@pytest.mark.parametrize("server", [
    Server([], versions=()), Server([], versions=("v9",)), Server([], may=False),
], ids=["not served", "unknown version", "no right"])  # fmt: skip
def test_where_it_is_not_served_or_forbidden_it_is_silent_and_soon_not_asked(
    server: Server,
) -> None:
    texts, changes = told(server, 9)
    assert (set(texts), changes, server.asked, server.looked) == ({""}, 0, [], 3)


def test_a_server_that_refuses_three_times_is_not_asked_again() -> None:
    server = Server(Refused("forbidden", "", code=403, reason="Forbidden"))
    assert set(told(server, 9)[0]) == {""}
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "fault",
    [
        Refused("away", "", code=503, reason="ServiceUnavailable"),
        ClusterFault("no answer", ""),
        TimeoutError(),
    ],
)
def test_a_server_that_is_away_is_asked_later_and_the_old_place_is_not_kept(
    fault: Exception,
) -> None:
    one = [pending("j", 1, 1)]
    server = Server(one, fault, fault, fault, fault, one)
    assert told(server, 6)[0] == ["2nd in line", "", "", "", "", "2nd in line"]


def test_a_job_that_waits_no_more_has_no_place() -> None:
    async def main() -> str:
        client: Any = Server([pending("j", 1, 1)])
        place = QueuePlace(client, JOB, lambda: None)
        place.ask("team", "j")
        assert place._asking
        await place._asking
        place.forget()
        await place.close()
        return place.text

    assert asyncio.run(main()) == ""
