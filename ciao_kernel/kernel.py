"""The kernel's class by the name that kernel specs of Enterprise Gateway give to its launcher."""

from __future__ import annotations

from ciao_kernel.jupyter.kernel import CiaoKernel

__all__ = ["CiaoKernel"]
