"""What a build in a pod is made from: its bases, its files, and no password; no pod is needed."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests

from ciao_kernel.builders import packed_context
from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.dockerfile import instructions
from ciao_kernel.builders.kaniko import KanikoBuilder
from ciao_kernel.builders.s2i import S2IBuilder
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.oci.layer import Layer
from tests.helpers.packages import Index
from tests.integration.builders.test_kaniko import Kernel
from tests.integration.builders.test_kaniko import kernel as kernel
from tests.integration.oci.conftest import impatient as impatient
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


@pytest.mark.parametrize("dry", [False, True])
def test_an_add_in_a_large_context_is_refused_before_anything_is_sent(
    kernel: Kernel, dry: bool
) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nADD big.tar /data/\n")
    (kernel.folder / "big.tar").write_bytes(os.urandom(1_000_000))
    sent = len(kernel.fake.blobs)

    with pytest.raises(SourceError, match="D, line 2: ADD is not supported for a context of this"):
        kernel.run(dockerfile="D", pip_secret="index", dry=dry)

    assert len(kernel.fake.blobs) == sent
    assert kernel.pods.pods == []


def test_an_add_in_a_context_that_packs_well_is_built(kernel: Kernel) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nADD big.txt /data/\n")
    (kernel.folder / "big.txt").write_bytes(bytes(1_000_000))

    kernel.run(dockerfile="D", dry=True)
    kernel.run(dockerfile="D")

    (context,) = kernel.pods.contexts
    assert "big.txt" in context


@pytest.mark.parametrize(
    ("conf", "used"),
    [
        ("index-url = https://jane:a*b@pypi.corp/simple/", "https://jane:a*b@pypi.corp/simple/"),
        ("index_url=https://jane:x=y@pypi.corp/simple", "https://jane:x=y@pypi.corp/simple"),
        (
            "extra-index-url:\n  https://a.b\n  https://t@pypi.corp/simple",
            "https://t@pypi.corp/simple",
        ),
        ("index-url = https://jane:x@pypi.corp/other", "https://pypi.corp/simple"),
        ("index-url = https://jane:x@pypi-corp/simple", "https://pypi.corp/simple"),
        (None, "https://pypi.corp/simple"),
    ],
)
def test_the_index_of_a_cell_has_the_password_of_the_secret(
    kernel: Kernel, tmp_path: Path, conf: str | None, used: str
) -> None:
    index = "https://pypi.corp/simple"
    kernel.run(packages=("app",), pip_index=index, pip_secret="index")
    (context,) = kernel.pods.contexts
    command = next(
        one.rest for one in instructions(context["Dockerfile"]) if one.rest.startswith("index=")
    )
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\necho "$PIP_INDEX_URL"\n')
    python.chmod(0o700)
    if conf is not None:
        (tmp_path / "pip.conf").write_text(f"[global]\n{conf}\n")

    command = command.replace("/etc/pip.conf", str(tmp_path / "pip.conf"))
    search = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-e", "-c", command], env=search, cwd="/", check=True, capture_output=True, text=True
    )

    assert done.stdout == f"{used}\n"


def test_an_unchanged_environment_is_not_packed(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nCOPY data /data\n")
    (kernel.folder / "data").write_text("x")
    kernel.run(dockerfile="D")
    packed: list[object] = []
    monkeypatch.setattr(packed_context, "pack_context", lambda *args: packed.append(args))
    assert kernel.run("print(2)", dockerfile="D").image
    assert packed == []


def test_files_that_change_meanwhile_are_not_built(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel.folder / "D").write_text(f"FROM {kernel.base}\nCOPY data /data\n")
    (kernel.folder / "data").write_text("x")
    pack = packed_context.pack_context

    def changed(*args: Any) -> Layer:
        (kernel.folder / "data").write_text("y")
        return pack(*args)

    monkeypatch.setattr(packed_context, "pack_context", changed)
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


@pytest.mark.parametrize(
    "lines",
    [
        "--index-url {url}\napp\n",
        "--index-url {url}\napp @ {file}\n",
        "--no-index\napp @ {file}\n",
        "--no-index\n{file}\n",
        "--index-url {url}\napp==1.0 --hash=sha256:{digest}\n",
        "--no-index\napp @ {file} --hash=sha256:{digest}\n",
    ],
)
def test_a_password_that_pip_uses_here_is_in_no_blob(
    kernel: Kernel, index: Index, lines: str
) -> None:
    index.add("app", "1.0")
    index.password = "hunter2"
    (wheel,) = index.files.values()
    url = index.url.replace("://", "://jane:hunter2@")
    file = url.replace("/simple", "/files/app-1.0-py3-none-any.whl")
    digest = hashlib.sha256(wheel).hexdigest()
    (kernel.folder / "r.txt").write_text(lines.format(url=url, file=file, digest=digest))

    assert kernel.run(kind=AppendBuilder, requirements="r.txt").image

    blobs = list(kernel.fake.blobs.values()) + [raw for _, raw in kernel.fake.manifests.values()]
    blobs += [gzip.decompress(blob) for blob in blobs if blob[:2] == b"\x1f\x8b"]
    assert any(b"app-1.0.dist-info" in blob for blob in blobs)
    assert not any(b"hunter2" in blob for blob in blobs)
    assert "hunter2" not in "".join(kernel.said)


@pytest.mark.parametrize("kind", [KanikoBuilder, S2IBuilder])
def test_hashes_reach_the_pip_of_a_pod(kernel: Kernel, kind: Any) -> None:
    kernel.settings["s2i_builder"] = kernel.base
    hashes = [f"--hash=sha256:{digit * 64}" for digit in "01"]
    lines = f"app==1.0 \\\n    {hashes[0]} \\\n    {hashes[1]}\n    # via lib\n"
    (kernel.folder / "r.txt").write_text(f"--require-hashes\n{lines}")

    kernel.run(kind=kind, requirements="r.txt")

    (context,) = kernel.pods.contexts
    (text,) = (text for name, text in context.items() if name.endswith("requirements.txt"))
    option, line = text.splitlines()
    assert option == "--require-hashes"
    assert line.split() == ["app==1.0", *hashes]


@pytest.mark.parametrize("text", ["lib>=2\n", "-e .\n"])
@pytest.mark.parametrize(
    ("wishes", "remedy"),
    [
        ({"packages": ("app",)}, "write %requirements=requirements.txt"),
        ({"requirements": "other.txt"}, "add a line `-r requirements.txt` to other.txt"),
        ({"requirements": "sub/a.txt"}, "add a line `-r ../requirements.txt` to sub/a.txt"),
    ],
)
def test_packages_do_not_replace_requirements_of_files(
    kernel: Kernel, text: str, wishes: dict[str, Any], remedy: str
) -> None:
    """The scripts would not install what that file names."""
    kernel.settings["s2i_builder"] = kernel.base
    (kernel.folder / "requirements.txt").write_text(text)
    (kernel.folder / "sub").mkdir()
    for name in "other.txt", "sub/a.txt":
        (kernel.folder / name).write_text("tool\n")
    with pytest.raises(SpecError, match=r"the scripts read one requirements\.txt") as raised:
        kernel.run(kind=S2IBuilder, files=("requirements.txt",), **wishes)
    assert raised.value.directive in wishes
    if text == "-e .\n":  # no requirements of a cell can have this line
        assert raised.value.hint == "Exclude the file by a line in .s2iignore."
    else:
        assert raised.value.hint.startswith(f"To install both, {remedy}. Exclude the file")
    assert kernel.pods.pods == []


@pytest.mark.parametrize("name", ["other.txt", "sub/a.txt"])
def test_requirements_may_name_those_of_files(kernel: Kernel, name: str) -> None:
    kernel.settings["s2i_builder"] = kernel.base
    (kernel.folder / "requirements.txt").write_text("lib>=2\n")
    (kernel.folder / "sub").mkdir()
    up = "../" if "/" in name else ""
    (kernel.folder / name).write_text(f"tool\n-r {up}requirements.txt\n")

    kernel.run(kind=S2IBuilder, files=("requirements.txt",), requirements=name)

    (context,) = kernel.pods.contexts
    assert context["upload/src/requirements.txt"] == "tool\nlib>=2\n"


def test_requirements_of_files_and_of_the_cell_are_installed_together(kernel: Kernel) -> None:
    kernel.settings["s2i_builder"] = kernel.base
    (kernel.folder / "requirements.txt").write_text("lib>=2  # a comment\n")
    files = ("requirements.txt",)

    kernel.run(kind=S2IBuilder, files=files)
    kernel.run(kind=S2IBuilder, files=files, requirements="requirements.txt", packages=("app",))
    (kernel.folder / ".s2iignore").write_text("requirements.txt\n")
    kernel.run(kind=S2IBuilder, files=files, packages=("app",))

    texts = [context["upload/src/requirements.txt"] for context in kernel.pods.contexts]
    assert texts == ["lib>=2  # a comment\n", "app\nlib>=2\n", "app\n"]


def test_arguments_of_a_dockerfile_are_known_before_the_build(kernel: Kernel) -> None:
    (kernel.folder / "app").mkdir()
    (kernel.folder / "app" / "x").write_text("x")
    host, name = kernel.base.rsplit(":", 1)
    text = (
        f'ARG TAG={name}\nFROM "{host}:${{NO:-${{TAG}}}}" AS a\nENV SRC=app\nFROM a\nCOPY $SRC /x\n'
    )
    (kernel.folder / "D").write_text(text)

    kernel.run(dockerfile="D")

    (context,) = kernel.pods.contexts
    assert f"FROM {host}@sha256:" in context["Dockerfile"]
    assert context["app/x"] == "x"

    (kernel.folder / "D").write_text(f"ARG TAG\nFROM {host}:$TAGS\n")
    with pytest.raises(SourceError, match="D, line 2: the image is unknown, because TAGS has no"):
        kernel.run(dockerfile="D")
    assert len(kernel.pods.pods) == 1
