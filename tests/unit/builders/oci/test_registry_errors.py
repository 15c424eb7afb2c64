"""What a registry that says no is asked next."""

from __future__ import annotations

import pytest

from ciao_kernel.builders.oci.registry_errors import pause


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("0", 0), ("", 1), ("\xb2", 1), ("٣", 1), ("-1", 1), ("9" * 9, 1), ("soon", 1)],
)
def test_how_long_to_wait(said: str, seconds: float) -> None:
    assert pause({"Retry-After": said}, 1) == seconds
