"""Cells as layers on images: real registry, real cluster, a user with the Role and nothing more."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.errors import DirectiveError, RegistryFault, SourceError, UsageError
from ciao_kernel.model import Output, Owner, State
from ciao_kernel.oci.append import Appender
from ciao_kernel.oci.image import Image, Platform
from ciao_kernel.oci.reference import parse
from ciao_kernel.oci.registries import Registries
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.cluster import Cluster
from tests.cluster.faults import policies
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.conftest import team as team
from tests.helpers.jobs import Ended, Recorder
from tests.helpers.packages import Index, serving

PASSWORD = "hunter2-of-jane"
LARGE = 200_000
"""Bytes: less than the packages of a cell."""
SMALL = 20_000
"""Bytes: more than the cell, the modules that it imports, and those of ciao beside them."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """An index that the kernel's machine alone can reach, and only with a password."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login jane password {PASSWORD}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving() as made:
        made.password = PASSWORD
        made.add("app", "1.5", "lib", code=f"padding = {secrets.token_hex(LARGE)!r}")
        made.add("lib", "2.0")
        yield made


def cost(builder: AppendBuilder) -> tuple[int, int]:
    """Requests to registries until now, and bytes."""
    accounts = builder._shared_state._accounts.values()
    opened = [one for account in accounts for one in account.registries._open.values()]
    return sum(one.requests for one in opened), sum(one.sent for one in opened)


@dataclass
class Ran:
    """A cell, and what it cost.

    Args:
        requests: To the registry.
        sent: Bytes to it.
        first: Seconds to the first line.
    """

    ended: Ended
    requests: int
    sent: int
    first: float

    @property
    def notices(self) -> str:
        return self.ended.display.notices

    def lines(self) -> list[str]:
        assert self.ended.error is None, (self.ended.error.message, self.notices)
        assert self.ended.result is not None
        assert self.ended.result.state is State.SUCCEEDED
        return self.ended.display.data("worker-0").decode().splitlines()


class Timed(Recorder):
    """Knows when the first line came."""

    first = 0.0

    def show(self, event: Any) -> None:
        if isinstance(event, Output) and not self.first:
            self.first = time.monotonic()
        super().show(event)


class Kernel:
    """Runs several cells in one session.

    Args:
        team: Whose it is.
        cluster: Its registry gets the images.
        index: Where packages are.
    """

    def __init__(self, team: Team, cluster: Cluster, index: Index) -> None:
        self.team, self.index, self.host = team, index, cluster.at.registry
        self.repository = f"tests/{secrets.token_hex(4)}"
        self.settings: dict[str, Any] = {
            "plain_registries": (self.host,),
            "registry": f"{self.host}/{self.repository}",
        }
        self.opened = Registries([self.host], find=lambda image: None)

    def cell(self, code: str, *wishes: str) -> str:
        head = ["%framework=tensorflow", "%worker=1", f"%pipIndex={self.index.url}", *wishes]
        return "\n".join([*head, code, ""])

    def run(self, *texts: str, **settings: Any) -> list[Ran]:
        async def main() -> list[Ran]:
            registry = Registry({})
            made = self.team.settings(**{**self.settings, **settings})
            session = Session(registry, Owner("a test", os.getpid()), made)
            assert session.parse(texts[0])  # names of builders are learned, and then one is kept
            builder = registry.builder("append", made)
            assert isinstance(builder, AppendBuilder)
            found = []
            try:
                for text in texts:
                    before = cost(builder)
                    display, start = Timed(), time.monotonic()
                    ended = await self.team._ended(session, text, display)
                    requests, sent = (x - y for x, y in zip(cost(builder), before, strict=True))
                    first = display.first - start
                    found.append(Ran(ended, requests, sent, first))
            finally:
                await registry.close()
            return found

        return asyncio.run(main())

    def tags(self) -> list[str]:
        image = parse(f"{self.host}/{self.repository}")
        path = f"{self.repository}/tags/list"
        answer = self.opened.of(image).call("GET", path, (), accept=(200, 404))
        return list(json.loads(answer.body).get("tags") or ())

    def image(self, ran: Ran) -> Image:
        said = next(line for line in ran.notices.splitlines() if line.startswith("image "))
        return Appender(self.opened.of).inspect(parse(said.split()[1]), Platform())

    def blobs(self, image: Image, base: int) -> list[bytes]:
        """The config, and the layers that are not the base's, unpacked."""
        own = self.opened.of(parse(f"{self.host}/{self.repository}"))
        found = [json.dumps(image.config).encode()]
        for layer in image.manifest["layers"][base:]:
            raw = own.call("GET", f"{self.repository}/blobs/{layer['digest']}", ()).body
            found.append(gzip.decompress(raw))
        return found


@pytest.fixture
def kernel(team: Team, local_cluster: Cluster, index: Index) -> Iterator[Kernel]:
    (team.folder / "ours.py").write_text("import below\nname = 'ours ' + below.name\n")
    (team.folder / "below.py").write_text("name = 'below'\n")
    made = Kernel(team, local_cluster, index)
    yield made
    made.opened.close()


CODE = "import app, ours\nprint(app.version, ours.name, {!r})"


def test_cells_with_packages_and_modules(kernel: Kernel, team: Team) -> None:
    wish = "%packages=app"
    texts = [kernel.cell(CODE.format(mark), wish) for mark in ("one", "two", "two")]
    plain = kernel.cell("import ours\nprint(ours.name)")
    append = kernel.cell("import ours\nprint(ours.name)", "%builder=append")

    first, edited, same, without, appended = kernel.run(*texts, plain, append)

    assert first.lines() == ["1.5 ours below one"]
    assert "downloading app==1.5, lib==2.0 …" in first.notices
    assert first.sent > LARGE
    assert edited.lines() == ["1.5 ours below two"]
    assert "downloading" not in edited.notices
    assert edited.requests <= 9
    assert edited.sent < SMALL
    assert same.lines() == edited.lines()
    assert "(unchanged)" in same.notices
    assert not same.sent
    assert without.lines() == ["ours below"]
    assert "image" not in without.notices
    assert not without.requests
    assert appended.lines() == ["ours below"]
    assert f"image {kernel.host}/{kernel.repository}@sha256:" in appended.notices
    print(
        {
            name: (ran.requests, ran.sent, round(ran.first, 2))
            for name, ran in zip(
                ("first", "edited", "same", "configmap", "append"),
                (first, edited, same, without, appended),
                strict=True,
            )
        }
    )

    # The image has the environment's layer and the cell's, and says nothing that is secret.
    image = kernel.image(edited)
    environment, cell = image.manifest["layers"][-2:]
    assert environment["digest"] in {
        layer["digest"] for layer in kernel.image(first).manifest["layers"]
    }
    assert cell["size"] < SMALL
    base = len(image.manifest["layers"]) - 2
    jobs = json.dumps(team.namespace.get("tfjobs,configmaps")).encode()
    texts_of_kernel = "".join(ran.notices for ran in (first, edited, same)).encode()
    for text in (*kernel.blobs(image, base), jobs, texts_of_kernel):
        assert PASSWORD.encode() not in text
        assert b"jane" not in text


@pytest.mark.second("builders")
def test_pod_security_and_a_file_of_requirements(kernel: Kernel, team: Team) -> None:
    """No pod builds anything; the image's user is not root."""
    team.namespace.label(policies.pod_security("restricted"))
    (team.folder / "requirements.txt").write_text("app>=1\nlib==2.0\n")
    base = f"%base={team.namespace.cluster.image('s2i-python')}"
    text = kernel.cell(CODE.format("closed"), "%requirements=requirements.txt", base)

    dry, ran = kernel.run(f"%dryrun\n{text}", text)

    assert dry.ended.error is None, dry.ended.error.message
    assert f"{kernel.host}/{kernel.repository}@sha256:" in dry.notices
    assert not dry.sent
    assert ran.lines() == ["1.5 ours below closed"]
    assert len(kernel.tags()) == 2


@pytest.mark.second("builders")
def test_a_dry_run_pushes_nothing(kernel: Kernel, team: Team) -> None:
    (dry,) = kernel.run(kernel.cell(CODE.format("dry"), "%packages=app", "%dryrun"))

    assert dry.ended.error is None, dry.ended.error.message
    assert kernel.tags() == []
    assert not dry.sent
    assert team.left() == []


@pytest.mark.second("builders")
def test_what_goes_wrong_is_one_error_and_leaves_nothing(kernel: Kernel, team: Team) -> None:
    cluster = team.namespace.cluster
    wish, code = "%packages=app", CODE.format("never")
    cases: list[tuple[list[str], dict[str, Any], type[Exception], str]] = [
        ([wish], {"registry": ""}, UsageError, "no registry is named"),
        (
            [wish, "%registry=127.0.0.1:1/cells"],
            {"plain_registries": (kernel.host, "127.0.0.1:1")},
            RegistryFault,
            "127.0.0.1:1 does not answer",
        ),
        ([wish, f"%base={cluster.image('coredns')}"], {}, SourceError, "no python3 was found"),
        ([wish, f"%base={kernel.host}/tests/gone:1"], {}, RegistryFault, "there is no image"),
        ([wish], {"architecture": "riscv64"}, RegistryFault, "linux/riscv64"),
        ([wish, "%builder=configmap"], {}, UsageError, "does not support %packages"),
        (["%packages=nobody-has"], {}, SourceError, "there is no wheel of nobody-has"),
        (["%packages=app lib==3"], {}, SourceError, "there is no wheel of lib==3"),
        (["%requirements=gone.txt"], {}, DirectiveError, "gone.txt cannot be read"),
    ]
    for wishes, settings, kind, says in cases:
        (ran,) = kernel.run(kernel.cell(code, *wishes), **settings)
        error = ran.ended.error
        assert isinstance(error, kind), (wishes, error, ran.notices)
        assert says in error.message
        assert error.hint
        assert PASSWORD not in error.message + error.hint + ran.notices
    assert kernel.tags() == []
    assert team.left() == []
