"""Quantities are read exactly, and plain numbers without the client library."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from ciao_kernel.kube.quantities import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", "8"),
        ("0", "0"),
        (8, "8"),
        ("500m", "0.5"),
        ("2e3", "2000"),
        ("1.5Ki", "1536"),
        ("²", None),
        ("", None),
        ("many", None),
        (None, None),
    ],
)
def test_what_is_no_quantity_is_none(text: Any, value: str | None) -> None:
    assert quantity(text) == (None if value is None else Decimal(value))


def test_a_plain_number_needs_no_client_library() -> None:
    code = (
        "import sys; from ciao_kernel.kube.quantities import quantity; "
        "quantity('8'); sys.exit('kubernetes.utils' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
