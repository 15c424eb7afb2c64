from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.command import User


@pytest.fixture
def ciao(tmp_path: Path) -> Iterator[User]:
    """A user who types ``ciao …``; nothing of theirs runs when the test is over."""
    user = User(tmp_path)
    yield user
    user.clean()
