"""One request to a registry, which may be sent several times."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ciao_kernel.oci.auth import Scopes


@dataclass(frozen=True, slots=True)
class Request:
    """One request, see :meth:`.registry.Registry.call`."""

    method: str
    place: str
    scopes: Scopes
    accept: Collection[int] = (200,)
    headers: Mapping[str, str] = field(default_factory=dict)
    data: Any = None
    size: int = 0
    what: str = ""

    def rewound(self, begins: int) -> bool:
        """Return whether the body can be sent again; a file is rewound to its first sent byte.

        Args:
            begins: That byte's place in the file.
        """
        if self.data is None or isinstance(self.data, bytes):
            return True
        if not hasattr(self.data, "seek"):
            return False
        self.data.seek(begins)
        return True

    def with_body(self) -> Request:
        """Return the GET of a HEAD: the answer to a HEAD has no body, so it gives no reason."""
        return replace(self, method="GET")
