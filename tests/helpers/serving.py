"""The cells of docs/frameworks.md whose replicas only serve, by the kind of their program."""

from __future__ import annotations

from tests.integration.docs.blocks import ROOT, read

_PAGE = ROOT / "docs" / "frameworks.md"
_FOUND = [block.text for block in read(_PAGE) if "\n%serve=" in block.text]

CELLS = dict(zip(("coordinator", "session"), _FOUND, strict=True))
