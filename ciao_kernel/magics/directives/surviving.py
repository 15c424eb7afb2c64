"""The directives for training that survives the loss of a replica."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics import stored_header
from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.directives.volumes import claim_and_folder
from ciao_kernel.magics.numeric_types import Count, Duration
from ciao_kernel.magics.shell_words import one_word
from ciao_kernel.magics.value_types import refuse_switch
from ciao_kernel.model.checkpoint import Checkpoint

MOST_RETRIES = 100


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A claim, with an optional folder in it; nothing means the setting ``checkpoint``."""

    expected: str = "CLAIM or CLAIM/FOLDER, or nothing, which means the setting checkpoint"
    bare: bool = True

    def parse(self, text: str) -> Checkpoint:
        """Split the value at its first slash."""
        word = one_word(text, self.expected) if text.strip() else ""
        if not word:
            return Checkpoint()
        refuse_switch(word)
        found = claim_and_folder(word)
        if found is None:
            raise ValueError(self.expected)
        return Checkpoint(*found)

    def render(self, value: Checkpoint) -> str:
        """Write the claim and the folder."""
        return str(value)


def directives() -> list[Directive]:
    """Return the entries of the table, in the order of display."""
    return [
        Directive(
            "checkpoint",
            "checkpoint",
            CheckpointPlace(),
            "A folder, CIAO_CHECKPOINT, that outlives pods and jobs: jobs of the same %name "
            "share it. It is on a claim, or on this machine in the folder of the setting volumes.",
            "%checkpoint=training/runs",
        ),
        Directive(
            "grace",
            "grace",
            Duration(),
            "Time from SIGTERM to SIGKILL when a replica is stopped or evicted, to save a "
            "checkpoint.",
            "%grace=60s",
            default="the setting stopGrace",
        ),
        Directive(
            "retries",
            "retries",
            Count(1, MOST_RETRIES),
            "How often the job is started again after the loss of a replica: its pod was deleted "
            "or evicted, or another process killed it. A program that fails is not started again.",
            "%retries=3",
            default="none",
        ),
    ]


def grace_of(header: str) -> int | None:
    """Return ``%grace`` of a job's stored header in seconds, None if it has none.

    Backends call it when they find the job.

    Args:
        header: See :mod:`ciao_kernel.magics.stored_header`.
    """
    return stored_header.value(header, "grace", Duration(), None)


def retries_of(header: str) -> int:
    """Return ``%retries`` of a job's stored header, as :func:`grace_of` does; 0 if it has none."""
    return stored_header.value(header, "retries", Count(1, MOST_RETRIES), 0)


def has_checkpoint(header: str) -> bool:
    """Return whether a job's stored header has ``%checkpoint``."""
    return stored_header.text(header, "checkpoint") is not None
