"""Each test has one tier, and what a run leaves out is said with the way to run it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.suites import slices, tiers, told
from tests.suites.slices import SLICES


class Item(SimpleNamespace):
    """As much of a collected test as tiers look at."""

    def __init__(self, name: str, callspec: Any = None, **marks: str) -> None:
        made = [getattr(pytest.mark, k)(v) for k, v in marks.items()]
        super().__init__(nodeid=name, callspec=callspec, marks=made)

    def iter_markers(self, name: str) -> list[Any]:
        return [mark.mark for mark in self.marks if mark.mark.name == name]


class Config(SimpleNamespace):
    def __init__(self, tiers: str, oldest: bool = False) -> None:
        self.gone: list[Any] = []
        hook = SimpleNamespace(pytest_deselected=lambda items: self.gone.extend(items))
        options = {"--tiers": tiers, "--oldest": oldest}
        super().__init__(stash=pytest.Stash(), hook=hook, options=options)

    def getoption(self, name: str) -> Any:
        return self.options[name]


def names(items: list[Any]) -> list[str]:
    return [item.nodeid for item in items]


def test_a_test_without_a_marker_is_of_the_first_tier() -> None:
    assert tiers.tier(Item("a")) == "first"
    assert tiers.tier(Item("a", second="docs")) == "docs"


def test_two_tiers_an_unknown_slice_and_a_false_representative_are_refused() -> None:
    both = Item("a", second="docs")
    both.marks.append(pytest.mark.second("rig"))
    with pytest.raises(pytest.UsageError, match="a has two tiers: docs, rig"):
        tiers.tier(both)
    with pytest.raises(pytest.UsageError, match="slices are rig, "):
        tiers.tier(Item("a", second="dogs"))
    with pytest.raises(pytest.UsageError, match="not of the first tier"):
        tiers.represented(Item("a", second="docs", stands_for="docs"))
    assert tiers.represented(Item("a", stands_for="docs")) == {"docs"}


def test_a_marker_may_mean_some_parameters_alone() -> None:
    for parameters, tier in (("notebook-True", "browser"), ("lab-True", "first")):
        item = Item("a", callspec=SimpleNamespace(id=parameters))
        item.marks = [pytest.mark.second("browser", only="notebook")]
        assert tiers.tier(item) == tier


def test_on_the_oldest_packages_the_representatives_run_and_the_rest_is_a_slice() -> None:
    def items() -> list[Any]:
        marked = Item("b", stands_for="oldest")
        exception = Item("c", stands_for="oldest", second="trials")
        return [Item("a"), marked, exception, Item("d", second="docs")]

    # What is tried many times is tried with the newest packages.
    for option, found in (
        ("first docs", ["b"]),
        ("oldest", ["a", "d"]),
        ("docs", []),
        ("all", "abd"),
    ):
        run = items()
        tiers.choose(Config(option, oldest=True), run)  # type: ignore[arg-type]
        assert names(run) == list(found)
    run = items()
    tiers.choose(Config("first oldest"), run)  # type: ignore[arg-type]
    assert names(run) == ["a", "b"]


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("first", {"first"}),
        ("first,gateway", {"first", "gateway"}),
        ("docs rig", {"docs", "rig"}),
        ("rest", set(SLICES)),
        ("all", {"first", *SLICES}),
    ],
)
def test_tiers_are_chosen_by_their_names(option: str, found: set[str]) -> None:
    assert tiers.read(option) == found


def test_a_tier_that_does_not_exist_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="'gatway' is none; there are first, rig"):
        tiers.read("first gatway")


def test_the_summary_counts_what_was_left_out_and_says_how_to_run_it() -> None:
    config = Config("first,docs")
    items: list[Any] = [
        Item("a"), Item("b", second="docs"), Item("c", second="rig"), Item("d", second="gateway"),
        Item("e", second="rig"),
    ]  # fmt: skip
    tiers.choose(config, items)  # type: ignore[arg-type]
    assert names(items) == ["a", "b"]
    assert names(config.gone) == ["c", "d", "e"]
    written: list[str] = []
    reporter = SimpleNamespace(config=config, write_line=written.append)
    told.write(reporter)  # type: ignore[arg-type]
    assert written == [
        "LEFT OUT 3 tests of other tiers (gateway 1, rig 2); "
        "run them: make test-all SLICES='gateway rig'"
    ]


def test_without_the_option_every_test_runs() -> None:
    items: list[Any] = [Item("a"), Item("b", second="docs")]
    tiers.choose(Config(""), items)  # type: ignore[arg-type]
    assert names(items) == ["a", "b"]


def test_five_commits_in_a_row_have_all_slices() -> None:
    for start in range(700, 710):
        found = [name for number in range(start, start + 5) for name in slices.of_commit(number)]
        assert sorted(found) == sorted(SLICES)


def test_what_workers_tell_reaches_the_summary_once() -> None:
    controller = SimpleNamespace(stash=pytest.Stash())
    for figures in (["first: 1 s"], ["second: 2 s"]):
        worker = SimpleNamespace(stash=pytest.Stash(), workeroutput={})
        told.left_out(worker, "3 tests")  # type: ignore[arg-type]
        for text in figures:
            told.figure(worker, text)  # type: ignore[arg-type]
        told.send(worker)  # type: ignore[arg-type]
        told.receive(controller, worker.workeroutput)  # type: ignore[arg-type]
    written: list[str] = []
    reporter = SimpleNamespace(
        config=controller, write_line=written.append, section=lambda title: written.append(title)
    )
    told.write(reporter)  # type: ignore[arg-type]
    assert written == ["figures", "first: 1 s", "second: 2 s", "LEFT OUT 3 tests"]
