"""Tab behind %ciao VERB: which names are offered, and that a slow cluster delays nobody."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.jupyter.verb_arguments import VerbArguments
from ciao_kernel.model import Job, Replica

TWO = (Replica("master", 0), Replica("worker", 0))
HERE = Job("mnist", "local", "pytorch", TWO, 2.0, "/jobs/mnist/work")
THERE = Job("bert", "kubernetes", "pytorch", TWO, 3.0, "team-a", kind_of_place="namespace")


class Search:
    """A search whose cluster answers when the test lets it."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.over = False
        self.waits: list[tuple[float, float]] = []

    def found(self, here: float, clusters: float) -> list[Job]:
        self.waits.append((here, clusters))
        return list(self.jobs)


class Tab:
    """A kernel in which Tab is pressed."""

    def __init__(self) -> None:
        self.searches: list[Search] = []
        self.asked: list[argparse.Namespace] = []
        self.now = 0.0
        self.arguments = VerbArguments(Settings, self._look, lambda: self.now)

    def _look(self, args: argparse.Namespace, settings: Settings) -> Any:
        self.asked.append(args)
        self.searches.append(Search([HERE]))
        return self.searches[-1]

    def press(self, marked: str) -> list[str] | None:
        cursor = marked.index("|")
        code = marked.replace("|", "", 1)
        found = self.arguments.complete(code, 0, cursor)
        if found is None:
            return None
        return [code[: found.start] + one + code[found.end :] for one in found.matches]


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%ciao attach |", ["%ciao attach mnist"]),
        ("%ciao logs -f mn|", ["%ciao logs -f mnist"]),
        ("%ciao delete other m|n", ["%ciao delete other mnist"]),
        ("%ciao describe x|", []),
        ("%ciao exec mnist/w|", ["%ciao exec mnist/worker-0"]),
        ("%ciao logs mnist --replica m|", [f"%ciao logs mnist --replica {one}" for one in
                                           ("master", "master-0")]),
        ("%ciao logs mnist --tai|", ["%ciao logs mnist --tail"]),
        ("%ciao logs mnist --tail |", []),
        ("%ciao jobs --output j|", ["%ciao jobs --output json"]),
        ("%ciao run train.py -- |", None),
        ("%ciao run my\\ |", None),
        ("%ciao run 'my |", None),
        ("%ciao no such |", None),
        ("print(1) |", None),
    ],
)  # fmt: skip
def test_what_is_offered(marked: str, expected: list[str] | None) -> None:
    assert Tab().press(marked) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("%ciao run |", ["data/", "my\\ own.py", "train.py"]),
        ("%ciao run tr|", ["train.py"]),
        ("%ciao run ./tr|", ["./train.py"]),
        ("%ciao run --worker 2 -d data/|", ["data/deep.py"]),
        ("%ciao run train.py --framework tensorf|", ["tensorflow"]),
        ("%ciao run --files no|", ["notes.txt"]),
        ("%ciao run train.py --wor|", ["--worker"]),
    ],
)
def test_programs_are_offered_behind_run(
    marked: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("train.py", "my own.py", "data/deep.py", "notes.txt", "data/a.csv"):
        (tmp_path / name).touch()
    before = marked.rpartition(" ")[0]
    assert Tab().press(marked) == [f"{before} {one}" for one in expected]


def test_a_slow_cluster_is_offered_by_the_next_tab() -> None:
    tab = Tab()
    assert tab.press("%ciao attach |") == ["%ciao attach mnist"]
    (search,) = tab.searches
    assert sum(search.waits[0]) < 1
    tab.now = 20.0
    search.jobs.append(THERE)
    # The search goes on, and no other one begins. The newest job comes first.
    assert tab.press("%ciao attach |") == ["%ciao attach bert", "%ciao attach mnist"]
    search.over = True
    tab.press("%ciao attach |")
    assert len(tab.searches) == 2
    # The name stays while the cluster is asked again.
    assert tab.press("%ciao attach b|") == ["%ciao attach bert"]


def test_a_search_that_hangs_is_given_up() -> None:
    tab = Tab()
    tab.press("%ciao attach |")
    tab.searches[0].jobs.append(THERE)
    tab.now = 40.0
    assert tab.press("%ciao attach |") == ["%ciao attach bert", "%ciao attach mnist"]
    assert len(tab.searches) == 2


def test_an_answer_is_not_asked_for_twice_in_a_moment_and_each_place_has_its_own() -> None:
    tab = Tab()
    tab.press("%ciao attach |")
    tab.searches[0].over = True
    tab.press("%ciao attach m|")
    assert len(tab.searches) == 1
    tab.press("%ciao attach -n team-a |")
    assert tab.asked[-1].namespace == "team-a"
    assert len(tab.searches) == 2
