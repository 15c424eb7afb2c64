"""The directives for training that survives the loss of a replica."""

from __future__ import annotations

from dataclasses import dataclass

from ciao_kernel.magics.directive import Directive
from ciao_kernel.magics.numeric_types import Duration
from ciao_kernel.magics.shell_words import one_word
from ciao_kernel.magics.volumes import claim_and_folder
from ciao_kernel.model.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class CheckpointPlace:
    """A claim, with an optional folder in it; nothing means the setting ``checkpoint``."""

    expected: str = "CLAIM or CLAIM/FOLDER, or nothing, which means the setting checkpoint"

    def parse(self, text: str) -> Checkpoint:
        """Split the value at its first slash."""
        word = one_word(text, self.expected) if text.strip() else ""
        if not word:
            return Checkpoint()
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
    ]


def grace_of(header: str) -> int | None:
    """Return ``%grace`` of a job's stored header in seconds, None if it has none.

    Backends call it when they find the job.

    Args:
        header: One directive per line, as :func:`ciao_kernel.magics.render.render` writes it.
    """
    for line in header.splitlines():
        name, _, value = line.partition("=")
        if name == "%grace":
            try:
                return Duration().parse(value)
            except ValueError:
                return None  # written by another version
    return None
