"""The way on which the files of a job leave its pods, as decided before anything exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ciao_kernel.model import Manifest, Replica
from ciao_kernel.model.outputs import OutputWay


class Upload(Protocol):
    """The addresses, program or folder by which pods send files to a bucket, registry or claim."""

    @property
    def notes(self) -> Mapping[str, str]:
        """Annotations of the pods, by which whoever finds one knows where its files are."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables of the container that sends."""

    @property
    def hidden(self) -> bool:
        """True if the program must not read the files and variables of that container."""

    def mounted(self, known: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
        """Return the volumes that a pod needs in addition, and the mounts of that container.

        Args:
            known: The volumes of the pod.
        """


@dataclass(frozen=True, slots=True)
class Delivery:
    """The way of the files of ``%output`` and ``%tensorboard``, and of large values."""

    way: OutputWay = OutputWay.EXEC
    upload: Upload | None = None
    """What the pods need to send files; None if ciao reads them from the pods or from logs."""
    values: Replica | None = None
    """The replica whose large values come as files; None if none do."""
    rules: Sequence[Manifest] = ()
    """The rules of the namespace's LimitRanges for containers, as far as they are known."""

    def of_template(self, role: str, *, only: bool) -> Delivery:
        """Return the delivery of the pods that one template makes.

        Args:
            role: The role for which it is made.
            only: Whether it is the only template, of all roles.
        """
        if self.values is None or only or self.values.role == role:
            return self
        return replace(self, values=None)
