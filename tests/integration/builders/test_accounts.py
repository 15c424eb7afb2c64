"""As whom registries are asked: who has signed in here, else the Secret of that cell alone."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import ClusterFault, RegistryFault
from ciao_kernel.model import Artifact, BuildSpec, JobSpec, Manifest, Source, SourceFile
from ciao_kernel.plugins import Build, Emit, PodResult
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.fake_registry import PASSWORD, USER, FakeRegistry, push_base

Serve = Callable[..., FakeRegistry]


def config(*fakes: FakeRegistry, password: str = PASSWORD) -> bytes:
    """Docker's ``config.json`` with a password of these registries."""
    both = base64.b64encode(f"{USER}:{password}".encode()).decode()
    return json.dumps({"auths": {fake.host: {"auth": both} for fake in fakes}}).encode()


class Namespace:
    """Has Secrets, and counts how often they are read."""

    def __init__(self, namespace: str, secrets: dict[str, bytes] | None = None) -> None:
        self.namespace, self.secrets, self.reads = namespace, secrets or {}, 0

    async def free(self) -> bool:
        return False

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodResult:
        raise AssertionError("nothing is built")

    async def secret(self, name: str) -> Mapping[str, bytes]:
        self.reads += 1
        if name not in self.secrets:
            raise ClusterFault(f"you may not read the Secret {name}.")
        return {".dockerconfigjson": self.secrets[name]}


class Kernel:
    """Appends cells to an image; nobody has signed in on its machine."""

    def __init__(self, near: FakeRegistry, far: FakeRegistry, folder: Path) -> None:
        self.near, self.far, self.folder = near, far, folder
        plain = (near.host, far.host)
        self.builder = AppendBuilder(
            Settings(storage=folder, plain_registries=plain, registry=f"{near.host}/team/cells")
        )

    def sign_in(self, *fakes: FakeRegistry) -> None:
        (self.folder / ".docker").mkdir()
        (self.folder / ".docker" / "config.json").write_bytes(config(*fakes))

    async def build(
        self, code: str, where: Namespace | None, secret: str | None, base: FakeRegistry
    ) -> Artifact:
        source = Source(SourceFile("cell.py", code.encode(), size=len(code)))
        spec = JobSpec("tensorflow", build=BuildSpec(push_secret=secret))
        image = f"{base.host}/bases/python:1"
        ask = Build(
            source, spec, "python3", "job", self.folder, self.folder, image, build_cluster=where
        )
        return await self.builder.build(ask, lambda event: None)

    def run(
        self, code: str, where: Namespace | None, secret: str | None, base: FakeRegistry | None
    ) -> Artifact:
        return asyncio.run(self.build(code, where, secret, base or self.near))


@pytest.fixture
def kernel(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "DOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    near, far = serve(auth="basic"), serve(auth="basic")
    push_base(near)
    push_base(far)
    return Kernel(near, far, tmp_path)


def test_a_secret_is_for_the_cell_that_names_it(kernel: Kernel) -> None:
    team = Namespace("team", {"push": config(kernel.near)})
    assert kernel.run("print(1)", team, "push", None).image

    with pytest.raises(RegistryFault, match="requires authentication"):
        kernel.run("print(2)", team, None, None)
    with pytest.raises(RegistryFault, match="requires authentication"):
        kernel.run("print(3)", None, None, None)
    assert kernel.run("print(4)", team, "push", None).image


def test_a_secret_is_for_its_namespace(kernel: Kernel) -> None:
    good = Namespace("team", {"push": config(kernel.near)})
    old = Namespace("others", {"push": config(kernel.near, password="old")})

    async def both() -> list[Any]:
        works = [kernel.build(f"print({i})", (good, old)[i % 2], "push", kernel.near)
                 for i in range(6)]  # fmt: skip
        return await asyncio.gather(*works, return_exceptions=True)

    ends = asyncio.run(both())
    assert all(isinstance(one, Artifact) for one in ends[::2])
    assert all(isinstance(one, RegistryFault) for one in ends[1::2])


def test_a_new_password_counts_at_once(kernel: Kernel) -> None:
    team = Namespace("team", {"push": config(kernel.near, password="old")})
    with pytest.raises(RegistryFault):
        kernel.run("print(1)", team, "push", None)
    team.secrets["push"] = config(kernel.near)
    assert kernel.run("print(1)", team, "push", None).image


def test_a_base_that_the_secret_alone_knows(kernel: Kernel) -> None:
    kernel.sign_in(kernel.near)
    team = Namespace("team", {"push": config(kernel.far)})

    assert kernel.run("print(1)", team, "push", kernel.far).image
    assert team.reads == 1


@pytest.mark.parametrize("auth", ["basic", "token"])
def test_an_old_login_that_hides_the_secret_is_told(kernel: Kernel, auth: str) -> None:
    kernel.sign_in(kernel.near)
    file = kernel.folder / ".docker" / "config.json"
    file.write_bytes(config(kernel.near, password="old"))
    kernel.near.how.auth = auth
    team = Namespace("team", {"push": config(kernel.near)})

    with pytest.raises(RegistryFault, match="does not accept the credentials") as raised:
        kernel.run("print(1)", team, "push", None)

    assert raised.value.hint == (
        f"`docker logout {kernel.near.host}` on this machine: its login comes before the Secret "
        f"push. Or renew it: `docker login {kernel.near.host}`."
    )
    file.unlink()
    assert kernel.run("print(1)", team, "push", None).image


def test_who_has_signed_in_needs_no_secret(kernel: Kernel) -> None:
    kernel.sign_in(kernel.near)
    team = Namespace("team")
    kernel.far.how.auth = ""

    assert kernel.run("print(1)", team, "push", None).image
    assert team.reads == 0
    assert kernel.run("print(1)", team, "push", kernel.far).image
    kernel.far.how.auth = "basic"
    push_base(kernel.far, layers=3)
    with pytest.raises(ClusterFault, match="you may not read the Secret push"):
        kernel.run("print(1)", team, "push", kernel.far)
