"""Finding jobs without a cluster: long lists, what this machine remembers, words for commands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.lookup import pages
from ciao_kernel.backends.kubernetes.submissions import Submissions
from ciao_kernel.backends.kubernetes.target import Targets
from ciao_kernel.config import Settings
from ciao_kernel.errors import Refused
from ciao_kernel.model import ClusterSpec, Job


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
