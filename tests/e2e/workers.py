"""What has a fixed name or port on the node, told apart by the worker whose test starts it."""

from __future__ import annotations

import os
from dataclasses import replace

from tests.cluster.faults.registries import Kind

_PORTS = 100
"""From one worker's ports to the next one's: more than any test's are apart."""


def number() -> int:
    """Return 0 where there are no workers, else 1 for the first, 2 for the second, and so on."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(name.removeprefix("gw")) + 1 if name else 0


def own(kind: Kind) -> Kind:
    """Return the kind of registry by a name, and at ports, that no other worker has."""
    if not number():
        return kind
    return replace(kind, name=f"{kind.name}-{number()}", port=kind.port + _PORTS * number())
