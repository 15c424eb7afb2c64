"""Protocol for sending output to a cell: the kernel and the IPython extension implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Publisher(Protocol):
    """Sends output to a cell."""

    def stream(self, text: str) -> None:
        """Append text to the cell's output."""

    def display(
        self,
        data: dict[str, str],
        display_id: str,
        *,
        update: bool,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Show a MIME bundle, or replace the bundle that was shown under this ID.

        Args:
            data: Texts by MIME type; base64 for binary types.
            display_id: ID of the bundle.
            update: Replace the bundle.
            metadata: Metadata by MIME type, such as the size of a picture.
        """
