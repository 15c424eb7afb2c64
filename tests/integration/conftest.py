"""The tests here, which pytest-xdist runs side by side, do not take each other's ports."""

from __future__ import annotations

from tests.helpers.loopback import pytest_runtest_protocol

__all__ = ["pytest_runtest_protocol"]
