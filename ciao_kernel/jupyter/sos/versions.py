"""Comparison of the versions of ciao in SoS and in a kernel: each may have its environment.

SoS calls functions of the kernel's ciao by their names. Another version may lack them, or may use
them in another way.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

QUESTION = {"ciao": "__import__('ciao_kernel').__version__"}
"""The ``user_expressions`` of an execute_request that read a kernel's version."""


def version_in(reply: Mapping[str, Any]) -> str:
    """Return the version in the content of an execute_reply; "" if the kernel has no ciao.

    Args:
        reply: The reply to a request with :data:`QUESTION`.
    """
    answer = reply.get("user_expressions", {}).get("ciao", {})
    try:
        return str(ast.literal_eval(answer["data"]["text/plain"]))
    except (KeyError, ValueError, SyntaxError):
        return ""


def explained(error: str, sos_version: str, kernel_version: str) -> str:
    """Return the text of a kernel's error, with both versions first if they differ.

    Args:
        error: The error.
        sos_version: The version in SoS.
        kernel_version: The version in the kernel; "" if the kernel has no ciao.
    """
    if sos_version == kernel_version:
        return error
    found = f"the kernel has ciao {kernel_version}" if kernel_version else "the kernel has no ciao"
    return (
        f"SoS has ciao {sos_version}, but {found}. Install the same version in both environments, "
        f"and restart SoS. (The kernel's error: {error})"
    )
