"""Paths that begin with a home folder."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import UsageError
from ciao_kernel.user_path import expanded


def test_a_home_folder_takes_the_place_of_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/mine")
    assert expanded("~/a") == Path("/mine/a")
    assert expanded("a/~b") == Path("a/~b")
    assert expanded("./~b") == Path("~b")


def test_a_user_that_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match=r"~nosuch1/x is no path .* has the name nosuch1\.") as one:
        expanded("~nosuch1/x")
    assert "./ before a name" in one.value.hint


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    with pytest.raises(UsageError, match="this user has no home folder"):
        expanded("~/x")
