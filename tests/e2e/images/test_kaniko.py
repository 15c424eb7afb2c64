"""Environments that a pod builds: real executor, real registry, a user with the Roles alone."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.errors import ClusterFault, RegistryFault, SourceError
from ciao_kernel.oci.append import Appender
from ciao_kernel.oci.image import Platform
from ciao_kernel.oci.reference import parse
from ciao_kernel.oci.registries import Registries
from tests.cluster.cluster import Cluster
from tests.cluster.faults import policies
from tests.cluster.faults.registries import OWNER, Kind, Registry
from tests.e2e.images.conftest import Maker
from tests.e2e.jobs.conftest import Team
from tests.e2e.jobs.conftest import team as team
from tests.e2e.workers import own
from tests.helpers.jobs import Ended, Recorder, wait
from tests.helpers.packages import serving

PASSWORD = "hunter2-of-jane"
CELL = "import app, ours\nprint(app.version, ours.name, open('/opt/built').read().strip(), {!r})"


def blobs(maker: Maker, image: str) -> bytes:
    """All that ciao and the executor added to an image, unpacked, and its config."""
    reference = parse(image)
    registries = Registries([maker.cluster.at.registry], find=lambda _: None)
    appender = Appender(registries.of)
    made = appender.inspect(reference, Platform())
    base = appender.inspect(parse(maker.cluster.image("python")), Platform())
    known = {layer["digest"] for layer in base.manifest["layers"]}
    found = json.dumps(made.config).encode()
    for layer in made.manifest["layers"]:
        if layer["digest"] not in known:
            path = f"{reference.repository}/blobs/{layer['digest']}"
            found += gzip.decompress(registries.of(reference).call("GET", path, ()).body)
    registries.close()
    return found


def enforce(maker: Maker, level: str) -> None:
    """Put a level of Pod Security on the namespace."""
    maker.team.namespace.label(policies.pod_security(level))


def test_an_environment_is_built_once_and_its_secrets_stay_outside(maker: Maker) -> None:
    enforce(maker, "baseline")
    (maker.team.folder / "ours.py").write_text("name = 'ours'\n")
    (maker.team.folder / "conf").mkdir()
    (maker.team.folder / "conf" / "built").write_text("built\n")
    # Where the cell will be is no mount of the pod's; the image's own user may install nothing.
    maker.dockerfile(
        "COPY conf/ /opt/", "COPY conf/ /ciao/conf", "USER 1001", "RUN test -f /opt/built"
    )
    with serving(maker.cluster.at.host_address) as index:
        index.password = PASSWORD
        index.add("app", "1.5", code="")
        address = index.url.replace("://", f"://jane:{PASSWORD}@")
        host = maker.cluster.at.host_address
        conf = f"[global]\nindex-url = {address}\ntrusted-host = {host}\n"
        maker.secret("index", **{"pip.conf": conf})
        wishes = ("%dockerfile=Dockerfile", "%packages=app", "%pipSecret=index")

        first = maker.run(CELL.format("one"), *wishes)
        assert maker.lines(first) == ["1.5 ours built one"]
        asked = len(index.asked)
        edited = maker.run(CELL.format("two"), *wishes)

    assert maker.lines(edited) == ["1.5 ours built two"]
    assert len(index.asked) == asked
    assert "[build] " in first.display.notices
    assert "[build] " not in edited.display.notices
    assert maker.left() == []
    said = next(line for line in edited.display.notices.splitlines() if line.startswith("image "))
    jobs = json.dumps(maker.team.namespace.get("tfjobs,configmaps"))
    everything = blobs(maker, said.split()[1]) + (first.display.notices + jobs).encode()
    assert b"app-1.5.dist-info" in everything
    assert PASSWORD.encode() not in everything


def test_a_failed_build_is_one_error_with_its_line(maker: Maker) -> None:
    maker.dockerfile("", "RUN echo the reason && \\", "  exit 7")

    ended = maker.run("print('never')", "%dockerfile=Dockerfile")

    assert isinstance(ended.error, SourceError)
    assert ended.error.message.startswith("Dockerfile, line 3: `echo the reason")
    assert ended.error.message.endswith("ended with exit code 7.")
    assert "\nthe reason" in ended.error.hint  # it may come after the executor's own last word
    assert maker.left() == []
    assert maker.tags() == []


@pytest.mark.second("builders")
def test_an_executor_that_cannot_be_had(maker: Maker) -> None:
    missing = f"{maker.cluster.at.registry}/nobody/has:1"

    ended = maker.run("print(1)", "%apt=git", kaniko_image=missing, hopeless_wait=2.0)

    assert isinstance(ended.error, ClusterFault)
    assert "cannot start: " in ended.error.message
    assert "kanikoImage" in ended.error.hint
    assert maker.left() == []


def test_an_interrupt_takes_the_pod_along(maker: Maker, figure: Callable[[str], None]) -> None:
    maker.dockerfile("RUN echo begun && sleep 600")

    async def interrupt(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: "[build] begun" in display.notices)
        assert len(maker.builds()) == 2  # the pod, and its context
        began.append(time.monotonic())
        work.cancel()

    began: list[float] = []
    with pytest.raises(asyncio.CancelledError):
        maker.run("print(1)", "%dockerfile=Dockerfile", during=interrupt)

    assert maker.left() == []
    figure(f"{time.monotonic() - began[0]:.1f} s from the interrupt to nothing left")
    assert maker.team.namespace.get("tfjobs")["items"] == []
    assert maker.tags() == []


@pytest.mark.second("builders")
def test_pod_security_refuses_such_pods_and_append_is_offered(maker: Maker) -> None:
    enforce(maker, "restricted")

    ended = maker.run("print(1)", "%apt=git")

    assert isinstance(ended.error, ClusterFault)
    assert "Pod Security refuses pods that build images" in ended.error.message
    assert "%builder=append" in ended.error.hint
    assert maker.left() == []


@pytest.mark.second("builders")
def test_who_may_not_is_told_which_role_it_takes(team: Team, local_cluster: Cluster) -> None:
    maker = Maker(team, local_cluster)

    ended = maker.run("print(1)", "%apt=git")

    assert isinstance(ended.error, ClusterFault)
    assert "missing rights: create pods, delete pods." in ended.error.message
    assert "verbs: [create, delete]" in ended.error.hint
    assert os.environ["KUBECONFIG"] not in ended.error.hint


@pytest.mark.second("builders")
def test_a_secret_that_is_not_there(maker: Maker) -> None:
    maker.secret("empty", other="text")
    wishes: dict[str, Any] = {
        "%pushSecret=gone": "there is no Secret gone",
        # Else pip would ask the public index for names that are private.
        "%pipSecret=empty": "references non-existent secret key: pip.conf",
    }
    for wish, says in wishes.items():
        ended = maker.run("print(1)", "%apt=git", wish)
        assert isinstance(ended.error, ClusterFault)
        assert says in ended.error.message
    assert maker.left() == []


@pytest.mark.second("builders")
def test_a_registry_that_knows_the_kernel_and_not_the_pod(
    maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has signed in, and nobody has told the pod."""
    kind = own(Kind("registry-builds", 5031, "token", tls=True))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    maker.dockerfile("RUN echo built > /opt/built")
    with Registry(maker.cluster, kind) as registry:
        entry = base64.b64encode(f"{OWNER.name}:{OWNER.password}".encode()).decode()
        auths = {"auths": {registry.host: {"auth": entry}}}
        (tmp_path / "config.json").write_text(json.dumps(auths))
        refused = maker.run(
            "print(1)",
            "%dockerfile=Dockerfile",
            registry=f"{registry.host}/{maker.repository}",
            registry_authority=str(registry.authority),
        )

    assert isinstance(refused.error, RegistryFault)
    assert "does not let the build push" in refused.error.message
    assert "%pushSecret" in refused.error.hint
    assert maker.left() == []
    shown = refused.display.notices + refused.error.hint
    assert OWNER.password not in shown
    assert entry not in shown
