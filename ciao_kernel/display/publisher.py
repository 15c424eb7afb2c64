"""What carries a cell's output: the kernel and the IPython extension have one each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Publisher(Protocol):
    """What carries output to a cell."""

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
        """Show a MIME bundle, or replace the one that was shown under this id.

        Args:
            data: Texts by MIME type; base64 where the type is binary.
            display_id: Names what is replaced.
            update: Whether to replace.
            metadata: By MIME type: such as the size of a picture.
        """
