"""What pip's answers depend on, on this machine: another digest where they may be others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ciao_kernel.delivery.packages import fingerprint


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("PIP_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def wheel(folder: Path, name: str, text: str = "x") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-1.0-py3-none-any.whl").write_text(text)


def seen(change: Callable[[], object], *options: str, index: str = "") -> bool:
    """Whether a change makes another digest; without one it stays."""
    before = fingerprint.digest(options, index)
    assert fingerprint.digest(options, index) == before
    change()
    return fingerprint.digest(options, index) != before


def test_archives_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    wheel(folder, "a")
    option = f"--find-links {folder}"

    assert seen(lambda: wheel(folder, "b"), option)
    assert seen(lambda: wheel(folder, "a", "rebuilt"), option)
    assert seen((folder / "b-1.0-py3-none-any.whl").unlink, option)
    assert not seen(lambda: (folder / "cell.ipynb").write_text("x"), option)
    assert not seen(lambda: wheel(folder / "deep", "c"), option)
    assert not seen(lambda: wheel(folder, "d"), "--find-links /nowhere", "--pre")


def test_archives_of_a_folder_with_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my wheels"
    wheel(folder, "a")

    assert seen(lambda: wheel(folder, "b"), f"--find-links '{folder}'", "-i it's")


def test_indexes_of_this_machine(tmp_path: Path) -> None:
    root = tmp_path / "my index"
    url = root.as_uri()
    wheel(root / "a", "a")

    assert seen(lambda: wheel(root / "b", "b"), index=url)
    assert seen(lambda: wheel(root / "b", "b", "rebuilt"), f"--extra-index-url={url}")
    assert seen(lambda: wheel(root / "b", "c"), f"-i {url}")
    assert not seen(lambda: wheel(root / "b", "d"), index="https://example.com/simple")


def test_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def said(name: str, value: str) -> Callable[[], None]:
        return lambda: monkeypatch.setenv(name, value)

    folder = tmp_path / "wheels"
    wheel(folder, "a")

    assert seen(said("PIP_INDEX_URL", "https://example.com/a"))
    assert seen(said("PIP_FIND_LINKS", f"{folder} https://example.com"))
    assert seen(lambda: wheel(folder, "b"))
    assert not seen(said("PIP_FIND_LINKS", "/other"), index="https://example.com")  # not asked
    assert not seen(said("PIP_CACHE_DIR", "/other"))


def test_a_new_password_for_the_index_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clouds give out a token that is valid for an hour."""
    index = "https://example.com/simple"
    first, second = (index.replace("://", f"://token:{one}@") for one in ("one", "two"))
    monkeypatch.setenv("PIP_INDEX_URL", first)
    assert not seen(lambda: monkeypatch.setenv("PIP_INDEX_URL", second), index=index)
    assert fingerprint.digest((), index) != fingerprint.digest((), f"{index}/other")


def test_a_new_password_in_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "own.conf"
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    text = "[global]\nindex-url = https://token:{}@example.com/simple\n"
    file.write_text(text.format("one"))
    assert not seen(lambda: file.write_text(text.format("two")), index="https://example.com/simple")


@pytest.mark.parametrize("place", [".config/pip/pip.conf", ".pip/pip.conf", "own.conf"])
def test_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    file, folder = tmp_path / place, tmp_path / "wheels"
    file.parent.mkdir(parents=True, exist_ok=True)
    if place == "own.conf":
        monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    text = f"[global]\nfind-links =\n    https://example.com\n    {folder}\n"

    assert seen(lambda: file.write_text(text))
    assert seen(lambda: wheel(folder, "a"))
    assert seen(lambda: file.write_text("[global]\nindex-url = https://example.com\n"))
    assert seen(lambda: file.write_text("no configuration"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # then pip reads none
    assert not seen(lambda: file.write_text(text))
