"""Usage of the GPUs that the processes of a replica may use, by nvidia-smi."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ciao_kernel.model.usage import GpuUsage

_PART = "MIG-"
"""Begin of the name of a part of a GPU."""


def _installed() -> Mapping[str, Sequence[Any]]:
    from ciao_kernel.delivery.inspection import usage_reader

    return usage_reader.named_gpus()


class GpuReadings:
    """The GPUs of this machine, asked only if a replica has one.

    Args:
        ask: Returns share, memory and total memory of each GPU, by its index and by its UUID.
        root: Where processes are described.
    """

    def __init__(
        self,
        ask: Callable[[], Mapping[str, Sequence[Any]]] = _installed,
        root: Path = Path("/proc"),
    ) -> None:
        self._ask, self._root = ask, root
        self._all: dict[str, GpuUsage] | None = None
        self._has_parts = False

    def of(self, pids: Iterable[int]) -> tuple[GpuUsage, ...]:
        """Return the GPUs that the processes of a replica may use."""
        names = self._devices(pids)
        self._has_parts |= any(name.startswith(_PART) for name in names)
        found = (self._find(name) for name in names if not name.startswith(_PART))
        return tuple(one for one in found if one is not None)

    def remark(self) -> str:
        """Return a sentence about devices that have no numbers; "" if there are none."""
        if not self._has_parts:
            return ""
        return "nvidia-smi does not report the usage of MIG devices, so their numbers are missing."

    def _find(self, name: str) -> GpuUsage | None:
        """Return a GPU by its index, or by so much of its UUID that no other one is meant."""
        if self._all is None:
            self._all = {one: GpuUsage(*values) for one, values in self._ask().items()}
        if name in self._all or name.isdigit():
            return self._all.get(name)
        meant = [usage for one, usage in self._all.items() if one.startswith(name)]
        return meant[0] if len(meant) == 1 else None

    def _devices(self, pids: Iterable[int]) -> list[str]:
        """Return the devices that ciao gave to a replica."""
        for pid in pids:
            with contextlib.suppress(OSError):
                for one in (self._root / str(pid) / "environ").read_bytes().split(b"\0"):
                    if one.startswith(b"CUDA_VISIBLE_DEVICES="):
                        names = one.decode("utf-8", "replace").partition("=")[2].split(",")
                        return [name.strip() for name in names if name.strip()]
        return []
