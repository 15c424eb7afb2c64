"""What a registry that says no is asked next."""

from __future__ import annotations

import pytest

from ciao_kernel.oci.registry_errors import pause


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("0", 1), ("", 1), ("-1", 1), ("soon", 1), ("Thu, 01 Jan 1970 00:00:00 GMT", 1)],
)
def test_how_long_to_wait(said: str, seconds: float) -> None:
    assert pause({"Retry-After": said}, 1) == seconds
