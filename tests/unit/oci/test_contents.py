"""Names of an image's files, layer by layer."""

from __future__ import annotations

from ciao_kernel.oci.contents import _over

SITE = "/usr/local/lib/python3.13/site-packages"


def test_what_a_layer_deletes_is_gone() -> None:
    names = {"/usr/local/bin/python3.13": "", f"{SITE}/numpy-2.1.info": ""}
    above = {f"{SITE}/.wh.numpy-2.1.dist-info": "", f"{SITE}/numpy-2.2.info": ""}

    seen = _over(names, above)

    assert seen == {"/usr/local/bin/python3.13": "", f"{SITE}/numpy-2.2.info": ""}
    opaque = {f"{SITE}/.wh..wh..opq": ""}
    assert _over(seen, opaque) == {"/usr/local/bin/python3.13": ""}
