"""Which registry an image has, and as whom it is asked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ciao_kernel.oci import registries
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.reference import Reference, parse
from ciao_kernel.oci.registries import Registries
from ciao_kernel.oci.registry import Registry


class Accounts:
    """Finds credentials, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.own: dict[str, Credentials] = {}

    def __call__(self, image: Reference) -> Credentials | None:
        self.asked.append(image.name)
        return self.own.get(image.repository)


def test_docker_hub_is_asked_by_its_other_name_and_called_by_its_own() -> None:
    registry = Registries(find=Accounts()).of(parse("python:3.13"))

    assert (registry.host, registry.name) == ("registry-1.docker.io", "docker.io")


def test_a_registry_is_opened_once_for_each_account() -> None:
    accounts = Accounts()
    accounts.own["b"] = Credentials("jane", "x")
    opened = Registries(["host:1"], find=accounts)

    one = opened.of(parse("host:1/a"))

    assert opened.of(parse("host:1/a:tag")) is one
    assert opened.of(parse("host:1/c")) is one
    assert opened.of(parse("host:1/b")) is not one
    assert opened.of(parse("host:2/a")) is not one
    assert accounts.asked == ["host:1/a", "host:1/c", "host:1/b", "host:2/a"]
    opened.close()
    assert opened.of(parse("host:1/a")) is not one


def test_credentials_are_looked_up_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = Accounts()
    opened = Registries(["host:1"], find=accounts)
    one = opened.of(parse("host:1/a"))
    later = time.monotonic() + 301
    monkeypatch.setattr(registries.time, "monotonic", lambda: later)

    assert opened.of(parse("host:1/a")) is one  # the same account: its connections stay
    accounts.own["a"] = Credentials("jane", "x")
    assert opened.of(parse("host:1/a")) is one
    assert len(accounts.asked) == 2
    monkeypatch.setattr(registries.time, "monotonic", lambda: later + 301)
    assert opened.of(parse("host:1/a")) is not one


def test_connections_of_an_old_password_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Registry] = []
    monkeypatch.setattr(Registry, "close", lambda one: closed.append(one))
    accounts = Accounts()
    accounts.own = {"a": Credentials("jane", "1"), "b": Credentials("jane", "1")}
    opened = Registries(["host:1"], find=accounts)
    first = opened.of(parse("host:1/a"))
    assert opened.of(parse("host:1/b")) is first

    opened.forget()
    assert opened.of(parse("host:1/a")) is first
    accounts.own["a"] = accounts.own["b"] = Credentials("jane", "2")
    opened.forget()
    second = opened.of(parse("host:1/a"))
    assert second is not first
    assert not closed  # the other repository may be at work with it
    assert opened.of(parse("host:1/b")) is second
    assert closed == [first]


def test_docker_and_podman_are_asked_where_nobody_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text('{"auths": {"host:1": {"auth": "amFuZTp4"}}}')
    opened = Registries(["host:1", "host:2"])

    jane, nobody = opened.of(parse("host:1/a")), opened.of(parse("host:2/a"))

    assert jane._requester.user == "jane"
    assert nobody._requester.user == ""
