"""Settings that name plug-ins which are not installed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ciao_kernel import commands
from ciao_kernel.api.client import NoDisplay
from ciao_kernel.commands import config as config_verb
from ciao_kernel.commands.doctor import _named_plugins
from ciao_kernel.config import Settings
from ciao_kernel.errors import SettingError
from ciao_kernel.model import Owner
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session

WRONG = {"backend": "LOCAL", "builder": "kanico", "framework": "tensorflo", "images": "tf=a:1"}
RIGHT = {"backend": "local", "builder": "kaniko", "framework": "jax", "images": "JAX=a:1"}
CELL = "%worker=1\n%dryrun\nprint(1)\n"


def caller(settings: Settings) -> Any:
    session = SimpleNamespace(settings=settings, registry=Registry({}))
    return commands.Caller(session, NoDisplay(), lambda _: None, Path())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["backend", "builder", "framework"])
def test_config_refuses_what_is_not_installed(name: str) -> None:
    face = caller(Settings())
    for value in (RIGHT[name], WRONG[name]):
        args = commands.parse(["config", f"{name}={value}"], print)
        if value == WRONG[name]:
            with pytest.raises(SettingError, match=f"^%ciao config: {name} "):
                asyncio.run(config_verb.run(args, face))
        else:
            asyncio.run(config_verb.run(args, face))
    assert face.session.settings == Settings().with_values({name: RIGHT[name]}, "%ciao config")


def test_config_takes_the_image_of_a_framework_that_may_be_installed_later() -> None:
    written: list[str] = []
    session = SimpleNamespace(settings=Settings(), registry=Registry({}))
    face = commands.Caller(session, NoDisplay(), written.append, Path())  # type: ignore[arg-type]
    args = commands.parse(["config", "images=myfw=a:1"], print)
    asyncio.run(config_verb.run(args, face))
    assert session.settings.images == {"myfw": "a:1"}
    assert "images names the framework 'myfw', which is not installed here." in written[0]
    written.clear()
    asyncio.run(
        config_verb.run(commands.parse(["config", "images=myfw=a:1", "-o", "json"], print), face)
    )
    assert [one["name"] for one in json.loads("".join(written))] == ["images"]


def test_doctor_finds_each_with_its_place() -> None:
    wrong = Settings().with_values(WRONG, "/etc/x")
    found = list(_named_plugins(caller(wrong), wrong))
    assert [one.level for one in found] == ["wrong", "wrong", "wrong", "note"]
    assert all(one.what.startswith("/etc/x: ") for one in found)
    right = Settings().with_values(RIGHT, "/etc/x")
    assert not list(_named_plugins(caller(right), right))


@pytest.mark.parametrize("name", ["backend", "builder", "framework"])
def test_a_cell_names_the_setting_and_its_place(tmp_path: Path, name: str) -> None:
    values = {"framework": "python", "backend": "local", name: WRONG[name]}
    settings = Settings(storage=tmp_path).with_values(values, "$X")
    session = Session(Registry({}), Owner("me"), settings)
    with pytest.raises(SettingError) as caught:
        asyncio.run(session.run(CELL, NoDisplay(), tmp_path))
    assert caught.value.message.startswith(f"$X: {name} cannot be {WRONG[name]!r}: expected one")


def test_a_directive_replaces_a_wrong_setting(tmp_path: Path) -> None:
    names = ("backend", "builder", "framework")
    wrong = Settings(storage=tmp_path).with_values({name: WRONG[name] for name in names}, "$X")
    session = Session(Registry({}), Owner("me"), wrong)
    header = "%framework=python\n%backend=local\n%builder=auto\n"
    assert asyncio.run(session.run(header + CELL, NoDisplay(), tmp_path)) is None
