"""Fixtures: registries that misbehave, and a client of them."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import RegistryFault, describe
from ciao_kernel.oci import append
from ciao_kernel.oci.append import Appended, Appender, Change
from ciao_kernel.oci.credentials import Credentials
from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.layer import File, pack
from ciao_kernel.oci.reference import parse
from ciao_kernel.oci.registries import Registries
from tests.integration.oci.fake_registry import (
    PASSWORD,
    REFRESH,
    USER,
    Behaviour,
    FakeRegistry,
    serving,
)

JANE = Credentials(USER, PASSWORD)


class User:
    """A kernel that appends cells to images.

    Args:
        plain: Hosts that speak http.
        credentials: Who it is.
        authority: Whom it trusts.
    """

    def __init__(
        self,
        plain: list[str],
        credentials: Credentials | None = None,
        authority: Path | None = None,
    ) -> None:
        registries = Registries(plain, authority, lambda image: credentials)
        self.use(registries)

    def use(self, registries: Registries) -> None:
        self.registries = registries
        self.appender = Appender(registries.of)

    def append(self, base: str, target: str, code: str = "print(1)", **more: Any) -> Appended:
        layer = pack([File("ciao/ciao_cell.py", code.encode())], writable=["ciao"])
        change = Change(env=(("A", "2"), ("C", "3")), labels=(("cell", "1"),), workdir="/ciao")
        layers = more.pop("layers", [layer])
        return self.appender.append(parse(base), parse(target), layers, change, Platform(), **more)

    def fault(self, work: Callable[[], Any]) -> RegistryFault:
        """The error that it ends with, which gives nothing away."""
        with pytest.raises(RegistryFault) as raised:
            work()
        error = raised.value
        shown = "\n".join([*describe(error), repr(error), *traceback.format_exception(error)])
        for secret in ("hunter2", "Basic amFuZ", "Bearer "):
            assert secret not in shown
        assert "During handling" not in shown
        assert "\n" not in error.message
        return error


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeRegistry]]:
    """Starts registries that end with the test."""
    with contextlib.ExitStack() as stack:

        def start(**how: Any) -> FakeRegistry:
            return stack.enter_context(serving(Behaviour(**how)))

        yield start


@pytest.fixture
def user() -> Iterator[Callable[..., User]]:
    """Makes users of registries, by http, who say who they are where that is asked for."""
    with contextlib.ExitStack() as stack:

        def make(*fakes: FakeRegistry, token: bool = False, known: bool = True) -> User:
            who = Credentials(identity_token=REFRESH) if token else JANE if known else None
            made = User([fake.host for fake in fakes], who)
            stack.callback(made.registries.close)
            return made

        yield make


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are as many as ever, and a hundredth as long; no proxy of the machine is used."""
    import time

    real = time.sleep
    monkeypatch.setattr(append.time, "sleep", lambda seconds: real(seconds / 100))
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
