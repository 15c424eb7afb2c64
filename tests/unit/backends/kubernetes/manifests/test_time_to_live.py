"""How long a finished job stays on the cluster: one with several tries long enough for the next."""

from __future__ import annotations

import pytest

from ciao_kernel.backends.kubernetes.apis import MPI_OPERATOR
from tests.unit.backends.kubernetes.manifests import test_indexed_manifest as indexed
from tests.unit.backends.kubernetes.manifests import test_manifest as operators

HEAD = "%framework=tensorflow\n%worker=2\n"


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ("%ttl=5s\n", 5),
        ("", 86_400),
        ("%ttl=5s\n%retries=3\n", 605),
        ("%ttl=5s\n%retries=3\n%grace=60s\n", 660),
        ("%ttl=1h\n%retries=3\n", 3600),
        ("%retries=3\n", 86_400),
    ],
)
def test_a_failed_try_stays_until_the_next_one_can_be_made(lines: str, seconds: int) -> None:
    """Otherwise Kubernetes deletes it before its follower acts, which looks like a stop."""
    policy = operators.objects(HEAD + lines, stop_grace=5.0).job["spec"]["runPolicy"]
    assert policy["ttlSecondsAfterFinished"] == seconds
    spec = indexed.objects(HEAD + lines, stop_grace=5.0).job["spec"]
    assert spec["ttlSecondsAfterFinished"] == seconds


def test_mpi_operator_gets_none_as_it_would_delete_only_the_launcher() -> None:
    """The MPIJob would stay without its logs, and look like one that may still be read."""
    cell = "%framework=mpi\n%image=i\n%worker=2\n"
    assert operators.objects(cell).job["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == 86_400
    policy = operators.objects(cell, api=MPI_OPERATOR).job["spec"]["runPolicy"]
    assert "ttlSecondsAfterFinished" not in policy
