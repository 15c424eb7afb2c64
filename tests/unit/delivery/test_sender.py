"""What a replica that sends files leaves beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.delivery.replica_files import HELD
from ciao_kernel.delivery.replica_files.sender import Sender


def test_a_fetch_is_marked_before_its_files_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large folder that takes longer than a pod stays for nobody."""
    monkeypatch.setenv(HELD, str(tmp_path))
    begun: list[set[str]] = []

    class Request(dict[str, Any]):
        """Tells when its words are read."""

        def __getitem__(self, key: str) -> Any:
            if key == "words":
                begun.append({path.name for path in tmp_path.iterdir()})
            return super().__getitem__(key)

    request = Request(
        base=str(tmp_path), words=[], after="", offset=0, limit=1, waits=False, waits_only=False,
        fetch="1",
    )  # fmt: skip
    Sender(len).send(request)
    assert begun[0] >= {"contact", "fetching-1"}
