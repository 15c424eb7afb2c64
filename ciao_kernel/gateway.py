"""Alias of the gateway's client: settings of Jupyter Servers contain this path."""

from __future__ import annotations

from ciao_kernel.jupyter.gateway import GatewayConnection

__all__ = ["GatewayConnection"]
