"""The gateway's client by the name that settings of Jupyter Servers have for it."""

from __future__ import annotations

from ciao_kernel.jupyter.gateway import GatewayConnection

__all__ = ["GatewayConnection"]
