"""Where nobody named a builder, a pod does what append cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ciao_kernel.builders.append import AppendBuilder
from ciao_kernel.errors import CiaoError
from tests.integration.builders.test_kaniko import Kernel
from tests.integration.oci.conftest import impatient as impatient
from tests.integration.oci.conftest import serve as serve
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
