"""The claim of a checkpoint without a folder on this machine: who named it, and what helps."""

from __future__ import annotations

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints
from ciao_kernel.errors import SpecError
from ciao_kernel.model import Checkpoint, JobSpec

ALONE = "%checkpoint alone needs none"


def refused(directive: Checkpoint, setting: str) -> SpecError:
    """Return the error for a job on this machine, where no claim has a folder."""
    spec = JobSpec("python", (), checkpoint=directive)
    with pytest.raises(SpecError) as caught:
        checkpoints.on_this_machine(spec, Settings(checkpoint=setting), "a")
    return caught.value


def test_a_claim_of_the_setting_is_not_the_cells() -> None:
    error = refused(Checkpoint(), "training")
    assert "training of %checkpoint, named by the setting checkpoint, has no" in error.message
    assert "volumes.training=/some/folder" in error.hint
    assert ALONE not in error.hint


@pytest.mark.parametrize(("setting", "helps"), [("", True), ("/kept", True), ("other", False)])
def test_a_claim_of_the_cell_may_be_left_out_if_the_setting_needs_none(
    setting: str, helps: bool
) -> None:
    error = refused(Checkpoint("training"), setting)
    assert error.message.startswith("the claim training of %checkpoint has no folder")
    assert (ALONE in error.hint) is helps
