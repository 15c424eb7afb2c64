"""Where nobody named a builder, a pod does what append cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.errors import CiaoError, SourceError
from tests.integration.builders.test_kaniko import Kernel
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.fake_registry import FakeRegistry
from tests.integration.oci.test_contents import push

ZSTD = b"\x28\xb5\x2f\xfd" * 200
NO_PYTHON = bytes(10240)


@pytest.mark.parametrize(
    ("blob", "why"), [(ZSTD, "it is compressed with zstd"), (NO_PYTHON, "no python3 was found")]
)
def test_a_pod_takes_over_an_image_that_cannot_be_looked_into(
    serve: Callable[..., FakeRegistry], tmp_path: Path, blob: bytes, why: str
) -> None:
    fake = serve(auth="")
    push(fake, blob)
    kernel = Kernel(fake, tmp_path)

    assert kernel.run(kind=AppendBuilder, packages=("app",)).image
    assert len(kernel.pods.pods) == 1
    assert any(why in said and "a pod builds the image" in said for said in kernel.said)
    with pytest.raises(CiaoError, match=why):
        kernel.run(kind=AppendBuilder, named="append", packages=("app",))


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("index-url = https://jane:hunter2@pypi.corp/simple", "index-url"),
        ("extra-index-url = https://pypi.corp/simple", "extra-index-url"),
        ("find-links = /opt/wheels", "find-links"),
    ],
)
def test_a_pod_does_not_take_packages_from_another_index(
    serve: Callable[..., FakeRegistry],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    name: str,
) -> None:
    """Somebody may have put a package of the same name on the public one."""
    fake = serve(auth="")
    push(fake, NO_PYTHON)
    kernel = Kernel(fake, tmp_path)
    (tmp_path / "pip.conf").write_text(f"[global]\n{setting}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))

    with pytest.raises(SourceError, match=f"does not have the {name} of pip") as caught:
        kernel.run(kind=AppendBuilder, packages=("app",))
    assert "no python3 was found" in caught.value.message
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert "%pipSecret" in caught.value.hint
    assert not kernel.pods.pods

    kernel.run(kind=AppendBuilder, packages=("app",), pip_secret="index")
    kernel.run(kind=AppendBuilder, packages=("app",), pip_index="https://pypi.corp/simple")
    for line in "--index-url https://pypi.corp/simple", "-i https://pypi.corp/a", "--no-index":
        (tmp_path / "requirements.txt").write_text(f"{line}\napp\n")
        kernel.run(kind=AppendBuilder, requirements="requirements.txt")
    kernel.settings["pip_secret"] = "other"
    kernel.run(kind=AppendBuilder, packages=("app",))
    assert len(kernel.pods.pods) == 6


def test_a_pod_takes_packages_from_the_index_that_the_image_has_too(
    serve: Callable[..., FakeRegistry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = serve(auth="")
    push(fake, ZSTD, "PIP_INDEX_URL=https://pypi.corp/simple/")
    kernel = Kernel(fake, tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "https://jane:hunter2@pypi.corp/simple")

    kernel.run(kind=AppendBuilder, packages=("app",))
    assert len(kernel.pods.pods) == 1


def test_a_pod_that_a_directive_needs_is_named_with_the_index_it_lacks(
    serve: Callable[..., FakeRegistry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = serve(auth="")
    push(fake, NO_PYTHON, "PIP_EXTRA_INDEX_URL=https://extra.corp/simple")
    kernel = Kernel(fake, tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "https://jane:hunter2@pypi.corp/simple")

    def said(*apt: str, **more: Any) -> list[str]:
        kernel.said.clear()
        kernel.run(apt=apt, **more)
        return [one for one in kernel.said if "on this machine" in one]

    (text,) = said("git", packages=("app",))
    assert "pip in the pod does not have the index-url of pip on this machine" in text
    assert "hunter2" not in text
    assert not said("git", packages=("app",), named="kaniko")
    assert not said("git", packages=("app",), pip_index="https://pypi.corp/simple")
    assert not said("git")
    monkeypatch.setenv("PIP_INDEX_URL", "https://pypi.org/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://extra.corp/simple")
    assert not said("git", packages=("app",))
