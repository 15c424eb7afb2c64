"""The builders that need a pod, against a registry; the pod is played by the test."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import tarfile
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.kaniko import KanikoBuilder
from ciao_kernel.builders.s2i import S2IBuilder
from ciao_kernel.config import Settings
from ciao_kernel.delivery.input import ignore_files
from ciao_kernel.errors import ClusterFault, RegistryFault, SourceError, SpecError
from ciao_kernel.model import (
    Artifact,
    BuildSpec,
    Event,
    JobSpec,
    Manifest,
    Notice,
    Progress,
    Source,
)
from ciao_kernel.model import SourceFile as Program
from ciao_kernel.plugins import Build, Builder, Emit, PodResult
from tests.helpers.packages import Index
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.fake_registry import PASSWORD, USER, FakeRegistry, push_base
from tests.integration.oci.test_contents import layer, push

Serve = Callable[..., FakeRegistry]


class Pods:
    """Plays the cluster: what a pod is asked to build is noted, and an image is pushed."""

    namespace = "team-a"

    def __init__(self, fake: FakeRegistry) -> None:
        self.fake = fake
        self.ends: list[PodResult] = []
        self.pods: list[Manifest] = []
        self.contexts: list[dict[str, str]] = []
        self.secrets: dict[str, Mapping[str, bytes]] = {}
        self.may = self.pushes = True

    async def free(self) -> bool:
        return self.may

    async def secret(self, name: str) -> Mapping[str, bytes]:
        if name not in self.secrets:
            raise ClusterFault(f"there is no Secret {name}.")
        return self.secrets[name]

    async def run(self, pod: Manifest, beside: Sequence[Manifest], emit: Emit) -> PodResult:
        self.pods.append(pod)
        raw = base64.b64decode(beside[0]["binaryData"]["context.tar.gz"])
        with tarfile.open(fileobj=BytesIO(raw)) as tar:
            self.contexts.append(
                {
                    member.name: opened.read().decode(errors="replace")
                    for member in tar
                    if (opened := tar.extractfile(member))
                }
            )
        emit(Notice('[build] time="x" level=info msg="RUN pip"'))
        args = pod["spec"]["containers"][0]["args"]
        to = next(one for one in args if one.startswith("--destination=")).rpartition(":")
        made = f"sha256:{'0' * 64}"
        if self.pushes:
            config = {"User": "1001", "Labels": {"built": to[2]}}
            made = push_base(self.fake, "team/cells", to[2], layers=1, config={"config": config})
        return self.ends.pop(0) if self.ends else PodResult(0, made)


class Kernel:
    """Builds cells."""

    def __init__(self, fake: FakeRegistry, folder: Path) -> None:
        self.fake, self.folder, self.pods = fake, folder, Pods(fake)
        self.base = f"{fake.host}/bases/python:1"
        self.said: list[str] = []
        self.progress: list[Progress] = []
        self.settings: dict[str, Any] = {
            "plain_registries": (fake.host,),
            "registry": f"{fake.host}/team/cells",
        }

    def emit(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.progress.append(event)
        else:
            assert isinstance(event, Notice)
            self.said.append(event.text)

    def run(
        self,
        code: str = "print(1)",
        kind: Callable[[Settings], Builder] = KanikoBuilder,
        *,
        dry: bool = False,
        named: str | None = None,
        architecture: str = "amd64",
        files: tuple[str, ...] = (),
        **wishes: Any,
    ) -> Artifact:
        async def main() -> Artifact:
            named_files = tuple(Program(name, origin=self.folder / name) for name in files)
            source = Source(Program("cell.py", code.encode(), size=len(code)), files=named_files)
            spec = JobSpec("tensorflow", build=BuildSpec(**wishes), builder=named)
            ask = Build(
                source, spec, "python3", "job", self.folder, self.folder, self.base, architecture,
                dry, self.pods,
            )  # fmt: skip
            made = await kind(Settings(storage=self.folder, **self.settings)).build(ask, self.emit)
            await asyncio.sleep(0)  # what threads said
            return made

        return asyncio.run(main())


@pytest.fixture
def kernel(serve: Serve, tmp_path: Path) -> Kernel:
    fake = serve(auth="")
    push(fake, layer())
    return Kernel(fake, tmp_path)


def test_an_environment_is_built_once_and_cells_are_appended(kernel: Kernel) -> None:
    first = kernel.run("print(1)", packages=("app",))
    second = kernel.run("print(2)", packages=("app",))
    same = kernel.run("print(2)", packages=("app",))
    other = kernel.run("print(2)", packages=("app", "lib"))

    assert len(kernel.pods.pods) == 2
    assert len({first.image, second.image, other.image}) == 3
    assert same.image == second.image
    assert kernel.said.count("[build] RUN pip") == 2
    assert f"image {same.image} (unchanged)" in kernel.said
    text = kernel.pods.contexts[0]["Dockerfile"]
    assert text.startswith(f"FROM {kernel.fake.host}/bases/python@sha256:")
    assert kernel.pods.contexts[0]["ciao-asked/requirements.txt"] == "app\n"
    assert text.splitlines()[1] == "USER root"
    assert text.splitlines()[-1] == "USER 1001"
    names = [pod["metadata"]["name"] for pod in kernel.pods.pods]
    assert len(set(names)) == 2
    assert all(len(name) < 60 for name in names)


def test_nothing_to_build_needs_no_pod(kernel: Kernel) -> None:
    assert kernel.run().image
    assert kernel.pods.pods == []


def test_a_dry_run_builds_nothing(kernel: Kernel) -> None:
    made = kernel.run(dry=True, apt=("git",))
    assert made.image.startswith(f"{kernel.fake.host}/team/cells:")
    assert "an image would be built" in kernel.said[-1]
    assert kernel.pods.pods == []
    assert not any(seen.line.startswith(("PUT", "POST")) for seen in kernel.fake.seen)


def test_a_digest_without_exit_code_0_is_no_image(kernel: Kernel) -> None:
    kernel.pods.ends = [PodResult(1, f"sha256:{'a' * 64}", "", (), ("error building image: oh",))]
    with pytest.raises(ClusterFault, match="ended with exit code 1: building image: oh") as raised:
        kernel.run(apt=("git",))
    assert raised.value.hint.endswith("error building image: oh")


def test_a_digest_that_got_lost_is_asked_for(kernel: Kernel) -> None:
    kernel.pods.ends = [PodResult(0, "no digest")]
    assert kernel.run(apt=("git",)).image
    kernel.pods.ends, kernel.pods.pushes = [PodResult(0, "no digest")], False
    with pytest.raises(RegistryFault, match="the build succeeded, but there is no"):
        kernel.run(apt=("gcc",))


def test_a_dockerfile_of_the_users(kernel: Kernel) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base} AS a\nCOPY data /data\n")
    (kernel.folder / "data").mkdir()
    (kernel.folder / "data" / "x.txt").write_text("x")
    (kernel.folder / "data" / "y.log").write_text("y")
    (kernel.folder / ".dockerignore").write_text("**/*.log\n")

    kernel.run(dockerfile="D", packages=("app",))

    (found,) = kernel.pods.contexts
    assert sorted(found) == ["Dockerfile", "ciao-asked/requirements.txt", "data/x.txt"]
    lines = found["Dockerfile"].splitlines()
    assert lines[0].startswith(f"FROM {kernel.fake.host}/bases/python@sha256:")
    assert lines[0].endswith(" AS a")
    assert lines[-2].endswith("-m pip install -r /opt/ciao/requirements.txt")
    assert lines[-1] == "USER 1001"
    for wish, directive in ({"apt": ("git",)}, "apt"), ({"base": kernel.base}, "base"):
        with pytest.raises(SpecError) as raised:
            kernel.run(dockerfile="D", **wish)  # type: ignore[arg-type]
        assert raised.value.directive == directive


@pytest.mark.parametrize("own", ["D", "Dockerfile"])
@pytest.mark.parametrize("name", [".dockerignore", "Dockerfile.dockerignore"])
def test_no_dockerignore_hides_what_pip_is_asked_for(kernel: Kernel, own: str, name: str) -> None:
    """The executor reads those of the context."""
    (kernel.folder / own).write_text(f"FROM {kernel.base}\nCOPY . /app\n")
    (kernel.folder / name).write_text("never")
    counts = name if own == "Dockerfile" else f"{own}.dockerignore"
    (kernel.folder / counts).write_text("**/*.txt")
    kernel.run(dockerfile=own)
    kernel.run(dockerfile=own, packages=("rich",))

    alone, both = (found[name] for found in kernel.pods.contexts)
    assert alone == "**/*.txt"
    assert both == "**/*.txt\n!ciao-asked\n!ciao-asked/**\n"
    assert not ignore_files.docker(both)("ciao-asked/requirements.txt")


def test_a_large_context_goes_through_the_registry(kernel: Kernel) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nCOPY big /data/\n")
    (kernel.folder / "big").write_bytes(os.urandom(1_000_000))

    kernel.run(dockerfile="D")
    kernel.run("print(2)", dockerfile="D")

    (found,) = kernel.pods.contexts
    assert list(found) == ["Dockerfile"]
    line = found["Dockerfile"].splitlines()[1]
    carried = line.split()[1].removeprefix(f"--from={kernel.fake.host}/team/cells@")
    assert line.endswith('["/ciao-context/big", "/data/"]')
    manifest = json.loads(kernel.fake.manifests["team/cells", carried][1])
    assert len(manifest["layers"]) == 1
    assert manifest["layers"][0]["size"] > 1_000_000


def test_where_pods_cannot_look(kernel: Kernel) -> None:
    for folder in "wheels", "'my wheels'", "me:hunter2@a.b":
        (kernel.folder / "r.txt").write_text(f"--find-links {folder}\napp\n")
        with pytest.raises(SourceError, match="folder of this machine") as raised:
            kernel.run(requirements="r.txt")
        assert "hunter2" not in raised.value.message
    with pytest.raises(SourceError, match=r"environment\.yml cannot be read"):
        kernel.run(conda_env="environment.yml")


def test_the_secret_serves_the_kernel_too(serve: Serve, tmp_path: Path) -> None:
    fake = serve(auth="basic")
    push_base(fake)
    kernel = Kernel(fake, tmp_path)
    known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    config = json.dumps({"auths": {fake.host: {"auth": known}}}).encode()
    kernel.pods.secrets = {"push": {".dockerconfigjson": config}, "other": {"x": b"y"}}

    with pytest.raises(RegistryFault, match="requires authentication"):
        kernel.run(apt=("git",))
    with pytest.raises(ClusterFault, match="there is no Secret gone"):
        kernel.run(apt=("git",), push_secret="gone")
    with pytest.raises(SpecError, match="Secret other holds no registry passwords"):
        kernel.run(apt=("git",), push_secret="other")
    assert kernel.run(apt=("git",), push_secret="push").image
    kernel.settings["push_secret"] = "push"
    assert kernel.run(apt=("gcc",)).image
    shown = json.dumps([kernel.said, kernel.pods.pods, kernel.pods.contexts])
    assert PASSWORD not in shown
    assert known not in shown


def test_another_secret_of_pip_is_another_environment(kernel: Kernel) -> None:
    """Its index may have other packages of the same names: no layer of one may serve the other."""
    for secret in (None, "index", "other", "index"):
        kernel.run(packages=("app",), pip_secret=secret)
    first, *others = (found["Dockerfile"] for found in kernel.pods.contexts)

    assert len(kernel.pods.pods) == 3
    assert "CIAO_PIP_SECRET" not in first
    assert [text.splitlines()[1] for text in others] == [
        "ARG CIAO_PIP_SECRET=team-a/index",
        "ARG CIAO_PIP_SECRET=team-a/other",
    ]
    kernel.pods.namespace = "team-b"  # type: ignore[misc]
    kernel.run(packages=("app",), pip_secret="index")
    assert len(kernel.pods.pods) == 4


def test_auto_goes_to_a_pod_where_there_is_no_wheel(kernel: Kernel, index: Index) -> None:
    wishes = {"packages": ("nobody-has",), "pip_index": index.url}

    made = kernel.run(kind=AppendBuilder, **wishes)
    assert made.image
    assert any(
        said.startswith("there is no wheel of nobody-has") and "a pod builds the image" in said
        for said in kernel.said
    )
    assert len(kernel.pods.pods) == 1
    with pytest.raises(SourceError, match="there is no wheel"):
        kernel.run(kind=AppendBuilder, named="append", **wishes)
    kernel.pods.may = False
    with pytest.raises(SourceError, match="there is no wheel"):
        kernel.run(kind=AppendBuilder, **wishes)
    assert len(kernel.pods.pods) == 1


def test_s2i_reads_labels_and_builds_once(kernel: Kernel) -> None:
    labels = {"io.openshift.s2i.scripts-url": "image:///opt/s2i"}
    push_base(kernel.fake, "s2i/python", config={"config": {"Labels": labels, "User": "1001"}})
    builder = f"{kernel.fake.host}/s2i/python:1"
    (kernel.folder / ".s2i" / "bin").mkdir(parents=True)
    (kernel.folder / ".s2i" / "bin" / "run").write_text("#!/bin/sh\n")
    (kernel.folder / ".s2i" / "environment").write_text("MODE=fast\n")

    kernel.run(kind=S2IBuilder, s2i_builder=builder, packages=("app",), pip_index="https://a.b")
    kernel.run("print(2)", kind=S2IBuilder, s2i_builder=builder, packages=("app",),
               pip_index="https://a.b")  # fmt: skip

    (found,) = kernel.pods.contexts
    assert found["upload/src/requirements.txt"] == "--index-url https://a.b\napp\n"
    assert "upload/scripts/run" in found
    assert 'ENV MODE="fast"\n' in found["Dockerfile"]
    assert "RUN /opt/s2i/assemble\n" in found["Dockerfile"]
    with pytest.raises(SpecError, match="needs a builder image"):
        kernel.run(kind=S2IBuilder)
    kernel.settings["s2i_builder"] = builder
    assert kernel.run(kind=S2IBuilder).image


def test_who_has_no_place_to_build(kernel: Kernel) -> None:
    kernel.pods = None  # type: ignore[assignment]
    with pytest.raises(SpecError, match="has no place to build"):
        kernel.run(apt=(secrets.token_hex(3),))
