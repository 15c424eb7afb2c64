"""Patterns that the oldest Pythons in use read as newer ones do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ciao_kernel

FILES = sorted(Path(ciao_kernel.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_pattern_repeats_a_group_possessively(file: Path) -> None:
    """Python 3.11.4 and older lose what such a group has matched last (gh-106052)."""
    code = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    assert not re.findall(r"\)[*+?]\+(?!\d)", code)
