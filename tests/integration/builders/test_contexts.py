"""What a build in a pod is made from: its bases, its files, and no password; no pod is needed."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest
import requests

from ciao_kernel.builders import context
from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.kaniko import KanikoBuilder
from ciao_kernel.builders.oci.layer import Layer
from ciao_kernel.builders.s2i import S2IBuilder
from ciao_kernel.errors import SourceError
from tests.helpers.packages import Index
from tests.integration.builders.test_kaniko import Kernel
from tests.integration.builders.test_kaniko import kernel as kernel
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.conftest import serve as serve
from tests.integration.oci.fake_registry import push_base


def test_packages_on_a_dockerfile_are_installed_by_root(kernel: Kernel) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nUSER 1001\n")
    kernel.run(dockerfile="D", packages=("app",))
    push_base(kernel.fake, "bases/own", config={"config": {"User": "7"}})
    (kernel.folder / "D").write_text(f"FROM {kernel.fake.host}/bases/own:1\n")
    kernel.run(dockerfile="D", packages=("app",))
    kernel.run(dockerfile="D")

    lines = [context["Dockerfile"].splitlines() for context in kernel.pods.contexts]
    assert lines[0][1:3] == ["USER 1001", "USER root"]
    assert lines[0][-1] == "USER 1001"
    assert (lines[1][1], lines[1][-1]) == ("USER root", "USER 7")
    assert len(lines[2]) == 1


def test_an_image_that_files_come_from_is_pinned(kernel: Kernel) -> None:
    push_base(kernel.fake, "bases/tools")
    copy = f"COPY --from={kernel.fake.host}/bases/tools:1 /x /x\n"
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\n{copy}")
    kernel.run(dockerfile="D")
    push_base(kernel.fake, "bases/tools", config={"config": {"User": "other"}})
    kernel.run(dockerfile="D")

    copied = [context["Dockerfile"].splitlines()[1] for context in kernel.pods.contexts]
    assert all(f"--from={kernel.fake.host}/bases/tools@sha256:" in line for line in copied)
    assert len(set(copied)) == 2


def test_what_the_config_map_holds_beside_the_context_counts(kernel: Kernel) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nCOPY big /data/\n")
    (kernel.folder / "big").write_bytes(os.urandom(850_000))
    kernel.run(dockerfile="D")
    kernel.settings["registry_authority"] = requests.certs.where()  # a quarter of a megabyte
    kernel.run(dockerfile="D", packages=("app",))

    assert [sorted(context)[:2] for context in kernel.pods.contexts] == [
        ["Dockerfile", "big"], ["Dockerfile"]
    ]  # fmt: skip


def test_an_unchanged_environment_is_not_packed(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nCOPY data /data\n")
    (kernel.folder / "data").write_text("x")
    kernel.run(dockerfile="D")
    packed: list[object] = []
    monkeypatch.setattr(context, "packed", lambda *args: packed.append(args))
    assert kernel.run("print(2)", dockerfile="D").image
    assert packed == []


def test_files_that_change_meanwhile_are_not_built(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nCOPY data /data\n")
    (kernel.folder / "data").write_text("x")
    pack = context.packed

    def changed(*args: Any) -> Layer:
        (kernel.folder / "data").write_text("y")
        return pack(*args)

    monkeypatch.setattr(context, "packed", changed)
    with pytest.raises(SourceError, match="changed while they were packed"):
        kernel.run(dockerfile="D")
    assert kernel.pods.pods == []


@pytest.mark.parametrize("kind", [KanikoBuilder, S2IBuilder, AppendBuilder])
def test_no_password_of_a_file_travels(kernel: Kernel, kind: Any) -> None:
    kernel.settings["s2i_builder"] = kernel.base
    lines = (
        "--extra-index-url https://jane:hunter2@example.com/simple\napp\n",
        "git+https://jane:hunter2@example.com/app\n",
        "-c held.txt\napp @ git+https://example.com/app\n",
    )
    (kernel.folder / "held.txt").write_text("a @ https://jane:hunter2@example.com/a.zip\n")
    for line in lines[1:] if kind is AppendBuilder else lines:
        (kernel.folder / "r.txt").write_text(line)
        with pytest.raises(SourceError, match="names a user or a password") as raised:
            kernel.run(kind=kind, requirements="r.txt")
        assert "%pipSecret" in raised.value.hint
        assert "hunter2" not in raised.value.message + "".join(kernel.said)
    assert kernel.pods.pods == []


TOKENS = (
    "channels:\n  - https://conda.anaconda.org/t/hunter2/team\n",
    "channels:\n  - https://jane:hunter2@example.com/c\n",
)


@pytest.mark.parametrize("text", TOKENS)
def test_no_token_of_condas_file_travels(kernel: Kernel, text: str) -> None:
    (kernel.folder / "environment.yml").write_text(text)
    with pytest.raises(SourceError) as raised:
        kernel.run(conda_env="environment.yml")
    assert "environment.yml, line 2 names a user or a password" in raised.value.message
    assert "hunter2" not in raised.value.message + raised.value.hint
    assert kernel.pods.pods == []


@pytest.mark.parametrize("wishes", [{"requirements": "r.txt"}, {"packages": ("app",)}])
def test_no_token_of_an_index_travels(kernel: Kernel, wishes: dict[str, Any]) -> None:
    address = "https://pypi.anaconda.org/t/hunter2/team/simple"
    (kernel.folder / "r.txt").write_text(f"--extra-index-url {address}\napp\n")
    if "packages" in wishes:
        wishes = {**wishes, "pip_index": address}
    with pytest.raises(SourceError, match="names a user or a password") as raised:
        kernel.run(**wishes)
    assert "hunter2" not in raised.value.message
    assert kernel.pods.pods == []


@pytest.mark.parametrize("named", ["app", "app @ {}/files/app-1.0-py3-none-any.whl"])
def test_a_password_that_pip_uses_here_is_in_no_blob(
    kernel: Kernel, index: Index, named: str
) -> None:
    index.add("app", "1.0")
    index.password = "hunter2"
    url = index.url.replace("://", "://jane:hunter2@")
    line = named.format(url.removesuffix("/simple"))
    (kernel.folder / "r.txt").write_text(f"--index-url {url}\n{line}\n")

    assert kernel.run(kind=AppendBuilder, requirements="r.txt").image

    blobs = list(kernel.fake.blobs.values()) + [raw for _, raw in kernel.fake.manifests.values()]
    blobs += [gzip.decompress(blob) for blob in blobs if blob[:2] == b"\x1f\x8b"]
    assert any(b"app-1.0.dist-info" in blob for blob in blobs)
    assert not any(b"hunter2" in blob for blob in blobs)
    assert "hunter2" not in "".join(kernel.said)
