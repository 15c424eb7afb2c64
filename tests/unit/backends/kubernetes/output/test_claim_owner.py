"""What a pod that reads a claim belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import job_metadata
from ciao_kernel.backends.kubernetes.output import output_claim
from ciao_kernel.model import Job
from tests.unit.backends.kubernetes.output.test_claim_reader import MODEL

META = {"name": "late", "uid": "u"}


@pytest.mark.parametrize(
    ("resource", "item", "version", "kind"),
    [
        ("jobs", {"metadata": META}, "batch/v1", "Job"),  # an item of a list has no kind
        ("jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": META}, "batch/v1", "Job"),
        (
            "tfjobs",
            {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": META},
            "kubeflow.org/v1",
            "TFJob",
        ),
    ],
)
def test_the_reader_of_a_claim_belongs_to_the_job(
    resource: str, item: Any, version: str, kind: str
) -> None:
    job = Job("late", "kubernetes", "python", (), 0.0, "team", resource=resource)
    pod = output_claim.reader(MODEL, ["a"], 1.0, job_metadata.with_kind(item, job))
    assert pod["metadata"]["ownerReferences"] == [
        {"apiVersion": version, "kind": kind, "name": "late", "uid": "u"}
    ]
