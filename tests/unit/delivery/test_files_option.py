"""The words of ``--files``: relative to the user, or to the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.delivery.input.imports import gather
from ciao_kernel.errors import SpecError


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """The program's folder, below the user's."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    return folder


def taken(here: Path, beside: Path, *words: str) -> dict[str, Path | None]:
    source = gather("", beside, words, "train.py", files_folder=here)
    return {file.path: file.origin for file in source.files}


def test_a_word_is_relative_to_the_users_folder(tmp_path: Path, beside: Path) -> None:
    (tmp_path / "data.csv").write_text("1")
    assert taken(tmp_path, beside, "data.csv") == {"data.csv": tmp_path / "data.csv"}


def test_a_word_that_matches_nothing_there_is_relative_to_the_program(
    tmp_path: Path, beside: Path
) -> None:
    (tmp_path / "a.csv").write_text("1")
    (beside / "b.csv").write_text("1")
    found = taken(tmp_path, beside, "a.csv", "b.*")
    assert found == {"a.csv": tmp_path / "a.csv", "b.csv": beside / "b.csv"}


@pytest.mark.parametrize("word", ["data.csv", "*.csv", "!data.csv"])
def test_two_different_files_are_refused(tmp_path: Path, beside: Path, word: str) -> None:
    (tmp_path / "data.csv").write_text("1")
    (beside / "data.csv").write_text("2")
    with pytest.raises(SpecError) as caught:
        taken(tmp_path, beside, word)
    assert caught.value.directive == "files"
    assert str(tmp_path / "data.csv") in caught.value.message
    assert str(beside / "data.csv") in caught.value.message
    mark = "!" if word.startswith("!") else ""
    assert f"--files {mark}./" in caught.value.hint
    explicit = f"{mark}./{word.removeprefix('!')}"
    assert taken(tmp_path, beside, explicit) == {"data.csv": tmp_path / "data.csv"}


def test_two_folders_of_one_name_are_refused(tmp_path: Path, beside: Path) -> None:
    for folder in (tmp_path, beside):
        (folder / "data").mkdir()
        (folder / "data" / "x").write_text("1")
    with pytest.raises(SpecError, match="names two things"):
        taken(tmp_path, beside, "data")


def test_equal_files_are_no_conflict(tmp_path: Path, beside: Path) -> None:
    (tmp_path / "data.csv").write_text("1")
    (beside / "data.csv").write_text("1")
    (beside / "link.csv").symlink_to(tmp_path / "data.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "data.csv")
    assert sorted(taken(tmp_path, beside, "data.csv", "link.csv")) == ["data.csv", "link.csv"]


@pytest.mark.parametrize("word", ["/etc/passwd", "../x", "absent", "~/x"])
def test_a_wrong_word_is_refused_as_everywhere(tmp_path: Path, beside: Path, word: str) -> None:
    with pytest.raises(SpecError):
        taken(tmp_path, beside, word)
