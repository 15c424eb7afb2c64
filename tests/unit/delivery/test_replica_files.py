"""The files that a word names, in a folder of a replica."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ciao_kernel.delivery.replica_files import EVENT_FILES, VALUES, Found, find, fitting
from ciao_kernel.model.outputs import event_files
from tests.helpers.rights import as_nobody


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    base = tmp_path / "work"
    for path in ("model/net.pt", "model/sub/b.pt", "log.csv", "a.csv", ".ciao/own", "deep/x/y.log"):
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(path)
    (tmp_path / "outside").write_text("secret")
    return base


def test_a_star_takes_names_with_a_dot_as_a_shell_does(tmp_path: Path) -> None:
    for path in (".hidden", "a", "d/.b", "d/c", ".e/f", "g/.h/i"):
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(path)

    def named(word: str) -> list[str]:
        return list(find(str(tmp_path), [word]).sizes)

    assert named("*") == ["a", "d/.b", "d/c", "g/.h/i"]  # in a folder everything
    assert (named("?"), named("d/*"), named("d/?b")) == (named("*"), ["d/c"], [])
    assert (named(".*"), named("d/.?"), named("**/*")) == (
        [".e/f", ".hidden"],
        ["d/.b"],
        [".e/f", "a", "d/.b", "d/c", "g/.h/i"],  # two stars match any folder
    )


@pytest.mark.parametrize(
    ("word", "paths"),
    [
        ("model/", ["model/net.pt", "model/sub/b.pt"]),
        ("./model", ["model/net.pt", "model/sub/b.pt"]),
        ("model/*.pt", ["model/net.pt"]),
        ("*.csv", ["a.csv", "log.csv"]),
        ("**/*.pt", ["model/net.pt", "model/sub/b.pt"]),
        ("deep/*", ["deep/x/y.log"]),
        ("deep/?/y.log", ["deep/x/y.log"]),
        ("**", ["a.csv", "deep/x/y.log", "log.csv", "model/net.pt", "model/sub/b.pt"]),
        (".ciao/own", []),
        ("mod/", []),
    ],
)
def test_words_name_files_and_what_is_in_folders(folder: Path, word: str, paths: list[str]) -> None:
    found = find(str(folder), [word])
    assert list(found.sizes) == paths
    assert found.missing == ([] if paths else [word])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("model/", True),
        ("model/**/*.pt", True),
        ("**/*.pt", True),
        ("*/sub/b.pt", True),
        ("model/*.pt", False),
        ("*.csv", False),
    ],
)
def test_a_folder_that_cannot_be_read_is_told_if_files_of_the_word_may_be_in_it(
    readable: Path, word: str, told: bool
) -> None:
    for path in ("model/net.pt", "model/sub/b.pt", "a.csv"):
        (readable / path).parent.mkdir(parents=True, exist_ok=True)
        (readable / path).write_text(path)
    (readable / "model/sub").chmod(0)
    try:
        with as_nobody():
            found = find(str(readable), [word])
    finally:
        (readable / "model/sub").chmod(0o755)
    assert found.faults == ({"model/sub": "Permission denied"} if told else {})
    assert not found.missing


def test_links_out_of_the_folder_and_pipes_are_not_followed(folder: Path) -> None:
    (folder / "model/out").symlink_to(folder.parent / "outside")
    (folder / "model/up").symlink_to(folder.parent, target_is_directory=True)
    (folder / "model/in").symlink_to(folder / "log.csv")
    (folder / "other").symlink_to(folder.parent, target_is_directory=True)
    os.mkfifo(folder / "model/pipe")
    found = find(str(folder), ["model/", "other/outside"])
    assert list(found.sizes) == ["model/in", "model/net.pt", "model/sub/b.pt"]
    assert found.left_out == ["model/out", "model/pipe", "model/up"]
    assert found.missing == ["other/outside"]


@pytest.mark.parametrize(
    ("words", "limit", "kept"),
    [
        (["a/", "runs/**/*tfevents*"], 30, ["a/b", "runs/x.tfevents.1"]),
        (["a/", "runs/**/*tfevents*"], 29, ["a/b"]),
        (["a/", "runs/", "runs/**/*tfevents*"], 29, ["a/b", "runs/x.tfevents.1"]),
        (["runs/**/*tfevents*"], 9, ["a/b", "runs/x.tfevents.1"]),
    ],
)
def test_event_files_give_way_to_the_files_of_output(
    words: list[str], limit: int, kept: list[str]
) -> None:
    found = fitting(Found({"a/b": 10, "runs/x.tfevents.1": 20}, [], [], {}), words, limit)
    assert list(found.sizes) == kept
    gone = [one for one in ("a/b", "runs/x.tfevents.1") if one not in kept]
    assert list(found.faults) == gone


@pytest.mark.parametrize(
    ("words", "limit", "kept"),
    [
        (["a/", VALUES, "runs/**/*tfevents*"], 34, ["a/b", VALUES + "x.npy", "runs/x.tfevents.1"]),
        (["a/", VALUES, "runs/**/*tfevents*"], 33, ["a/b", VALUES + "x.npy"]),
        (["a/", VALUES, "runs/**/*tfevents*"], 13, ["a/b"]),
        (["**", VALUES], 13, ["a/b", VALUES + "x.npy", "runs/x.tfevents.1"]),
    ],
)
def test_values_give_way_to_files_after_event_files(
    words: list[str], limit: int, kept: list[str]
) -> None:
    sizes = {"a/b": 10, VALUES + "x.npy": 4, "runs/x.tfevents.1": 20}
    assert list(fitting(Found(sizes, [], [], {}), words, limit).sizes) == kept


def test_the_word_for_event_files_is_known_in_replicas() -> None:
    assert event_files("runs/a") == f"runs/a{EVENT_FILES}"
