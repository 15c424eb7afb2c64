"""Images for one architecture: which nodes can run them, and bases that lack it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.builders.kaniko import KanikoBuilder
from ciao_kernel.builders.s2i import S2IBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import RegistryFault
from ciao_kernel.plugins import Builder
from tests.integration.builders.test_kaniko import Kernel
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.fake_registry import FakeRegistry, push_base
from tests.integration.oci.test_contents import layer, push

Maker = Callable[[Settings], Builder]


@pytest.fixture
def kernel(serve: Callable[..., FakeRegistry], tmp_path: Path) -> Kernel:
    """Its base has images for amd64 only."""
    fake = serve(auth="")
    push(fake, layer())
    labels = {"io.openshift.s2i.scripts-url": "image:///opt/s2i"}
    push_base(fake, "s2i/python", config={"config": {"Labels": labels, "User": "1001"}})
    return Kernel(fake, tmp_path)


def wishes(kernel: Kernel, kind: Maker) -> list[dict[str, Any]]:
    """What a cell may ask of a builder: nothing but its own layer, or more."""
    if kind is S2IBuilder:
        return [{"s2i_builder": f"{kernel.fake.host}/s2i/python:1", "packages": ("app",)}]
    # The image has numpy: nothing of it changes, and the wheel would be for its architecture.
    return [{}, {"packages": ("numpy",)} if kind is AppendBuilder else {"apt": ("git",)}]


KINDS = pytest.mark.parametrize("kind", [AppendBuilder, KanikoBuilder, S2IBuilder])


@KINDS
@pytest.mark.parametrize("dry", [False, True])
def test_every_image_names_the_architecture_of_its_nodes(
    kernel: Kernel, kind: Maker, dry: bool
) -> None:
    for wish in wishes(kernel, kind):
        assert kernel.run(kind=kind, dry=dry, **wish).architecture == "amd64"


@KINDS
def test_a_base_that_lacks_it_is_an_error_before_anything_exists(
    kernel: Kernel, kind: Maker
) -> None:
    for wish in wishes(kernel, kind):
        with pytest.raises(RegistryFault, match="is for linux/amd64, but the nodes are linux/arm6"):
            kernel.run(kind=kind, architecture="arm64", **wish)
    assert kernel.pods.pods == []
    assert not any(seen.line.startswith(("PUT", "POST")) for seen in kernel.fake.seen)
