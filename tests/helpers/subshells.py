"""Subshells of a kernel (ipykernel 7): further threads that run cells beside the main one."""

from __future__ import annotations

import pytest

from tests.helpers.kernels import Client, Request


def add_subshell(kernel: Client) -> str:
    """The id of a new one."""
    features = kernel.ask("kernel_info_request", {}).get("supported_features", [])
    if "kernel subshells" not in features:
        pytest.skip("this ipykernel has no subshells")
    return str(kernel.ask("create_subshell_request", {}, control=True)["subshell_id"])


def execute(kernel: Client, code: str, subshell: str) -> Request:
    """Send a cell to a subshell and return at once."""
    content = {"code": code, "silent": False, "store_history": True}
    request = kernel.send("execute_request", content, header={"subshell_id": subshell})
    request.code = code
    return request
