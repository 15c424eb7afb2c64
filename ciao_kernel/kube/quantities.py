"""Quantities of Kubernetes, such as ``500m`` and ``1.5Gi``: read exactly, and written shortly."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

_BINARY = {"Ti": 1024**4, "Gi": 1024**3, "Mi": 1024**2}


def quantity(text: Any) -> Decimal | None:
    """Parse a quantity of Kubernetes (``500m``, ``1.5Gi``, ``2e3``); None if it is invalid."""
    if isinstance(text, str) and text.isdecimal():  # such as the devices of a node
        return Decimal(text)
    # Late: the client library takes a quarter of a second, and only quotas, LimitRanges, output and
    # measurements need it.
    from kubernetes.utils import parse_quantity

    try:
        value: Decimal = parse_quantity(text)  # type: ignore[no-untyped-call]
    except (ValueError, ArithmeticError):
        return None
    return value if value.is_finite() else None


def shown(value: Decimal) -> str:
    """Format a sum with the largest unit that gives a whole number."""
    for unit, size in _BINARY.items():
        if value >= size and not value % size:
            return f"{value / size:f}{unit}"
    if value % 1:
        return f"{value * 1000:f}".rstrip("0").rstrip(".") + "m"
    return f"{value:f}".partition(".")[0]
