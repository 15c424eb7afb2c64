"""``ciao config`` changes one member of a table, or adds to a list; the rest stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel import commands, config
from ciao_kernel.commands import config as verb
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError, SettingError, UsageError
from ciao_kernel.session.plugin_registry import Registry

BEFORE: dict[str, Any] = {
    "images": "tensorflow=t:1 pytorch=p:1",
    "volumes": "claim=/a nfs://files.example.com/E=/e",
    "plainRegistries": "a:5000",
    "hostFolders": "/a",
    "jobVolumes": "claim:data",
}


def settings() -> Settings:
    return Settings().with_values(BEFORE, "file")


def changed(*words: str) -> Settings:
    return verb.applied([verb._read(one) for one in words], settings(), "%ciao config")


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["images.jax=j:1"], "images", "tensorflow=t:1 pytorch=p:1 jax=j:1"),
        (["Images.PyTorch=h:5/p@sha256:0"], "images", "tensorflow=t:1 pytorch=h:5/p@sha256:0"),
        (["images.PYTORCH="], "images", "tensorflow=t:1"),
        (["images.jax="], "images", "tensorflow=t:1 pytorch=p:1"),
        (["images.tensorflow=", "images.pytorch="], "images", ""),
        (["images.jax=j", "images.mpi=m"], "images", "tensorflow=t:1 pytorch=p:1 jax=j mpi=m"),
        (["images=jax=j", "images.mpi=m"], "images", "jax=j mpi=m"),
        (["images.mpi=m", "images=jax=j"], "images", "jax=j"),
        (["volumes.claim=/b c"], "volumes", "'claim=/b c' nfs://files.example.com/E=/e"),
        (
            ["volumes.nfs://files.example.com/E=/x"],
            "volumes",
            "claim=/a nfs://files.example.com/E=/x",
        ),
        (["volumes.nfs://files.example.com/E="], "volumes", "claim=/a"),
        (["volumes.CLAIM="], "volumes", BEFORE["volumes"]),
        (["plainRegistries+=b"], "plainRegistries", "a:5000 b"),
        (["plain-registries+=a:5000"], "plainRegistries", "a:5000"),
        (["plainRegistries+=b a:5000 b"], "plainRegistries", "a:5000 b"),
        (["plainRegistries+="], "plainRegistries", "a:5000"),
        (["hostFolders+=/a/b", "hostFolders+=/c"], "hostFolders", "/a /a/b /c"),
        (["jobVolumes+=claim:data tmp:x"], "jobVolumes", "claim:data tmp:x"),
    ],
)
def test_the_rest_stays(words: list[str], name: str, value: str) -> None:
    rows = {row[0]: row[1:3] for row in changed(*words).rows()}
    assert rows.pop(name) == (value, "%ciao config")
    before = {row[0]: row[1:3] for row in settings().rows()}
    assert rows == {one: row for one, row in before.items() if one != name}


@pytest.mark.parametrize(
    ("word", "message", "hint"),
    [
        ("color.x=1", "color is no table", "Expected color=VALUE."),
        ("plainRegistries.x=1", "plainRegistries is no table", "Expected plainRegistries+=VALUE"),
        ("plainRegistries.x+=1", "plainRegistries is no table", "Expected plainRegistries+=VALUE"),
        ("color+=never", "color is no list", "Expected color=VALUE."),
        ("images+=jax=j", "images is no list", "Expected images.NAME=VALUE"),
        ("images.jax+=j", "images is no list", "Expected images.NAME=VALUE"),
        ("image.jax=j", "unknown setting 'image'", "Did you mean images?"),
        ("origins.x=1", "unknown setting 'origins'", "%ciao config"),
        ("images.jax=a,b", "images cannot be {jax = 'a,b'}", "%ciao config"),
        ("volumes.claim=here", "expected CLAIM=/FOLDER", "%ciao config"),
        ("plainRegistries+=http://a", "expected HOST or HOST:PORT", "%ciao config"),
        ("jobVolumes+=tmp:data", "jobVolumes cannot be", "%ciao config"),
    ],
)
def test_what_is_expected_is_said(word: str, message: str, hint: str) -> None:
    with pytest.raises(SettingError) as caught:
        changed(word)
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("word", ["images.=x", ".jax=x", "+=x", "plainRegistries+", "images.jax"])
def test_another_form_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not of the form key=value"):
        verb._read(word)


class User:
    """A user with a file of settings, and a kernel that read it before its last change."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.session = SimpleNamespace(settings=settings(), registry=Registry({}))

    def config(self, *words: str, terminal: bool = True) -> str:
        caller = commands.Caller(
            self.session,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            lambda text: None,
            self.file.parent,
            terminal=terminal,
        )
        asyncio.run(verb.run(commands.parse(["config", *words], lambda text: None), caller))
        return self.file.read_text()


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> User:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    all_users, file = tmp_path / "all.toml", config.config_files()[1]
    file.parent.mkdir()
    all_users.write_text("images.xgboost = 'x:1'\nplainRegistries = ['all:1']\n")
    monkeypatch.setattr(config, "config_files", lambda: (all_users, file))
    return User(file)


def test_the_lines_of_other_members_stay_in_the_file(user: User) -> None:
    user.file.write_text('images.tensorflow = "t:2" # mine\nplainRegistries = ["b"]\n')
    assert user.config("images.jax=j:1", "plainRegistries+=c") == (
        'images.tensorflow = "t:2" # mine\nimages.jax = "j:1"\nplainRegistries = ["b", "c"]\n'
    )
    assert user.config("images.tensorflow=") == (
        'images.jax = "j:1"\nplainRegistries = ["b", "c"]\n'
    )


def test_what_the_administrator_has_set_stays(user: User) -> None:
    assert user.config("images.jax=j:1", "plainRegistries+=c") == (
        'images = {xgboost = "x:1", jax = "j:1"}\nplainRegistries = ["all:1", "c"]\n'
    )


def test_a_kernel_keeps_its_own_values_and_saves_over_those_of_the_file(user: User) -> None:
    user.file.write_text('images.mpi = "m:1"\n')
    assert user.config("--save", "images.jax=j:1", terminal=False) == (
        'images.mpi = "m:1"\nimages.jax = "j:1"\n'
    )
    assert {**user.session.settings.images} == {
        "tensorflow": "t:1",
        "pytorch": "p:1",
        "jax": "j:1",
    }


def test_a_file_whose_rest_cannot_be_read_is_not_changed(user: User) -> None:
    text = "images.mpi = 'm:1'\ncolor = 'blue'\n"
    user.file.write_text(text)
    with pytest.raises(CiaoError, match="color"):
        user.config("images.jax=j:1")
    assert user.file.read_text() == text
