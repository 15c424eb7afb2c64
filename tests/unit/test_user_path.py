"""Paths that begin with a home folder."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any

import pytest

import ciao_kernel
from ciao_kernel.backends.local import interpreter
from ciao_kernel.config import Settings
from ciao_kernel.errors import EnvironmentFault, UsageError
from ciao_kernel.kube import configured, kubeconfig
from ciao_kernel.magics.help.path_completion import paths
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


def test_one_function_alone_knows_the_sign() -> None:
    files = Path(ciao_kernel.__file__).parent.rglob("*.py")
    assert [one.name for one in files if "expanduser" in one.read_text()] == ["user_path.py"]


def test_a_setting_is_named_with_the_user_that_is_missing() -> None:
    settings = Settings(registry_authority="~nosuch1/ca.pem")
    with pytest.raises(
        UsageError, match=r"registryAuthority is ~nosuch1/ca\.pem, which is no path"
    ):
        _ = settings.authority_file


def test_the_kubeconfig_of_a_missing_user_is_a_missing_file() -> None:
    environment = {"KUBECONFIG": "~nosuch1/config"}
    assert kubeconfig.named(environment) == [Path("~nosuch1/config")]
    assert kubeconfig.files(environment) == []
    assert configured.configured(environment), "a typo makes no local job of a cluster's"


def test_an_interpreter_of_a_missing_user_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"~nosuch1/python: there is no such home folder\."):
        interpreter.find("~nosuch1/python", tmp_path)


def test_a_folder_may_begin_with_the_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "~kept").mkdir()
    monkeypatch.chdir(tmp_path)
    assert Settings().with_values({"storage": "./~kept"}, "x").storage == tmp_path / "~kept"
    assert paths("./~kept/../~k", tmp_path) == ["./~kept/../~kept/"]
