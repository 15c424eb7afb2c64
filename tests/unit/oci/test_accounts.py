"""When the Secret with a registry's passwords is read."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import ClusterFault
from ciao_kernel.oci import reference
from ciao_kernel.oci.accounts import DOCKER_KEY, Account, Accounts

IMAGE = reference.parse("host.example/team/cells")


class Cluster:
    """Has one Secret; the first reading of it may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.reads, self.may_answer = fails, 0, asyncio.Event()

    async def secret(self, name: str) -> Mapping[str, bytes]:
        self.reads += 1
        await self.may_answer.wait()
        if self.fails:
            self.fails = False
            raise ClusterFault("the API server does not answer.")
        password = base64.b64encode(b"pods:password").decode()
        return {DOCKER_KEY: json.dumps({"auths": {IMAGE.host: {"auth": password}}}).encode()}


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user who has signed in nowhere."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "none.json"))


def account(cluster: Any) -> tuple[Accounts, Account]:
    shared = Accounts((), None, "push")
    return shared, Account(shared, cluster)


def test_who_asks_while_the_secret_is_read_waits_for_it() -> None:
    async def main() -> None:
        cluster = Cluster()
        shared, one = account(cluster)
        asked = [asyncio.ensure_future(one.ensure_credentials(IMAGE)) for _ in range(3)]
        while not cluster.reads:
            await asyncio.sleep(0)
        await asyncio.wait(asked, timeout=0.1)
        assert not any(task.done() for task in asked)
        cluster.may_answer.set()
        await asyncio.gather(*asked)
        assert cluster.reads == 1
        assert shared._find(IMAGE) is not None

    asyncio.run(main())


def test_a_secret_that_could_not_be_read_is_read_again() -> None:
    async def main() -> None:
        cluster = Cluster(fails=True)
        cluster.may_answer.set()
        shared, one = account(cluster)
        with pytest.raises(ClusterFault):
            await one.ensure_credentials(IMAGE)
        await one.ensure_credentials(IMAGE)
        assert shared._find(IMAGE) is not None

    asyncio.run(main())
