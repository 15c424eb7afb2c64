"""A kernel whose ciao is not the version of SoS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ciao_kernel import __version__
from tests.integration.sos.conftest import running

# IPython runs it when a kernel starts: a later ciao, in which the module has another name.
_LATER = """
import sys

if getattr(get_ipython(), "kernel", None) and get_ipython().kernel.implementation == "ciao":
    import ciao_kernel
    ciao_kernel.__version__ = "99.0"
    sys.modules["ciao_kernel.jupyter.sos.kernel_side"] = None
"""


def test_an_error_names_the_versions_that_differ(place: Any) -> None:
    startup = Path(place.env["IPYTHONDIR"]) / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-later.py").write_text(_LATER)
    differ = f"SoS has ciao {__version__}, but the kernel has ciao 99.0. Install the same version"
    with running(place) as sos:
        sos.ok("a = 1")
        sos.ok("%use Ciao")
        assert f"%get cannot create a in Ciao: {differ}" in sos.run("%get a").text
        sos.ok("b = 2")
        assert f"%put cannot send b: {differ}" in sos.run("%put b").text
