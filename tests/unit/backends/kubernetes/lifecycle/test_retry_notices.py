"""Who starts a job again, as the cell and a dry run say it (docs/surviving.md)."""

from __future__ import annotations

import pytest

from ciao_kernel.backends.kubernetes import apis
from ciao_kernel.backends.kubernetes.lifecycle import retry_notices
from ciao_kernel.backends.kubernetes.submission.choice import Choice

CLUSTER, FOLLOWER = "Kubernetes replaces pods", "who follows the job starts it again after the loss"


@pytest.mark.parametrize(
    ("choice", "who"),
    [
        (Choice(apis.OPERATOR_V1), FOLLOWER),
        (Choice(apis.MPI_OPERATOR), FOLLOWER),
        (Choice(apis.JOB), CLUSTER),
        (Choice(apis.TRAINER), CLUSTER),
        (Choice(apis.TRAINER, runtime="ciao-pytorch"), FOLLOWER),  # without a podFailurePolicy
    ],
)
def test_who_replaces_a_lost_pod_depends_on_the_rules_of_the_job(choice: Choice, who: str) -> None:
    said = retry_notices.resubmission("mnist", replaces=choice.replaces_disrupted)
    assert who in said
    assert "`%ciao attach mnist`" in said
