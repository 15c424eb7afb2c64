"""Alias of the kernel's class: kernelspecs of Enterprise Gateway give this path to its launcher."""

from __future__ import annotations

from ciao_kernel.jupyter.kernel import CiaoKernel

__all__ = ["CiaoKernel"]
