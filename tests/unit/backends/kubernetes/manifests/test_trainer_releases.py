"""What ciao submits has only fields that the CRDs of each release of Kubeflow Trainer have."""

from __future__ import annotations

import pytest

from ciao_kernel.backends.kubernetes.apis import TRAINER
from ciao_kernel.backends.kubernetes.manifests import (
    job_objects,
    manifest,
    pod_security,
    runtime_overrides,
    shared_runtime,
)
from ciao_kernel.backends.kubernetes.manifests.runtime_overrides import Fields
from ciao_kernel.config import Settings
from ciao_kernel.model import Job
from tests.helpers.trainer_crds import VERSIONS, Release
from tests.unit.backends.kubernetes.manifests.test_indexed_manifest import plan_of
from tests.unit.backends.kubernetes.manifests.test_manifest import build, source

FIELDS = {
    "2.0.0": None,
    "2.0.1": None,
    "2.1.0": Fields(patches=False, deadline=False, grace=False),
    "2.2.0": Fields(grace=False),
    "2.2.1": Fields(grace=False),
    "2.3.0": Fields(),
}
"""What a TrainJob of each release can change in a runtime of the cluster; 2.0 cannot label pods."""
HEADERS = {
    "tensorflow": "%framework=tensorflow\n%ps=1\n%chief=1\n%worker=2\n%evaluator=1\n",
    "tensorflow, serving": "%framework=tensorflow\n%ps=1\n%chief=1\n%worker=2\n%serve=ps,worker\n",
    "pytorch": "%framework=pytorch\n%worker=2\n",
    "jax": "%framework=jax\n%worker=2\n",
    "xgboost": "%framework=xgboost\n%worker=2\n",
    "paddle": "%framework=paddle\n%worker=2\n",
    "mpi": "%framework=mpi\n%worker=2\n%slots=2\n",
    "python": "%framework=python\n%worker=2\n",
    "custom": "%framework=custom\n%worker=2\n%command=sh {cell}\n",
}
ELASTIC = "%framework=pytorch\n%worker=2\n%min=1\n"
EVERYWHERE = (
    "%image=team/image:1\n%cpu=1\n%memory=1Gi\n%labels=team=a\n%annotations=note=x\n"
    "%nodeSelector=disk=ssd\n%toleration=gpu=yes:NoSchedule\n%imagePullSecret=registry\n"
    "%volume=data:in\n%volume=team/runs:runs\n%checkpoint=own/kept\n%envvar=A=b\n"
)
"""Directives that each kind of runtime allows, in each release that has it."""
OWN = "%envsecret=a\n%serviceAccount=a\n%priorityClass=a\n%deadline=1h\n%grace=90s\n"
"""Further directives of jobs with a runtime of their own."""


def objects(text: str, fields: Fields | None = None) -> job_objects.Objects:
    plan = plan_of(text)
    job = Job("mnist", "kubernetes", "x", plan.spec.replicas(), 1.0, "team", owner="ada")
    return manifest.objects(
        plan, job, build(source()), Settings(), "run-1", sleeps=True, api=TRAINER, fields=fields
    )


def test_all_releases_are_here() -> None:
    assert tuple(FIELDS) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_runtime_of_its_own_fits_each_release(version: str) -> None:
    release = Release(version)
    for name, header in {**HEADERS, "elastic": ELASTIC}.items():
        made = objects(EVERYWHERE + OWN + header + "%output=a/\n" * (name != "mpi"))
        for one in (made, pod_security.secured(made)):
            assert release.wrong(one.job) == release.wrong(one.holder) == [], header


@pytest.mark.parametrize("version", [one for one, fields in FIELDS.items() if fields])
def test_what_a_job_changes_in_a_runtime_of_the_cluster_fits_its_release(version: str) -> None:
    release, fields = Release(version), FIELDS[version]
    assert fields
    for header in HEADERS.values():
        more = "%deadline=1h\n" * fields.deadline + "%grace=90s\n" * fields.grace
        made = objects(EVERYWHERE + more + header, fields)
        plan = plan_of(EVERYWHERE + more + header)
        obstacle = shared_runtime.obstacle(plan, Settings(), fields, restricted=fields.patches)
        assert obstacle == "", header
        for one in (made, pod_security.secured(made)) if fields.patches else (made,):
            assert release.wrong(one.job) == [], header
        assert release.wrong(shared_runtime.runtime(plan.framework)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_probe_finds_the_fields_of_each_release(version: str) -> None:
    """The server drops what it does not know."""
    probe = runtime_overrides.probe("ciao-jax", "team")
    kept = Release(version).pruned(probe)
    assert kept["spec"]["runtimeRef"] == probe["spec"]["runtimeRef"]
    assert runtime_overrides.known(kept) == FIELDS[version]


def test_a_field_of_another_release_is_found() -> None:
    made = objects(HEADERS["jax"], FIELDS["2.3.0"]).job
    assert Release("2.1.0").wrong(made) == ["spec.runtimePatches is unknown"]
    twice = objects(HEADERS["jax"], FIELDS["2.2.1"]).job
    (patch,) = twice["spec"]["runtimePatches"]
    twice["spec"]["runtimePatches"] = [patch, patch]
    assert "the same key twice" in Release("2.2.1").wrong(twice)[0]
    twice["spec"]["trainer"]["numNodes"] = "2"
    assert "is no integer" in "".join(Release("2.2.1").wrong(twice))
    assert not Release("2.0.1").has("TrainJob", "runtimePatches")
    assert Release("2.0.1").has("TrainJob", "podSpecOverrides", "containers", "volumeMounts")
    assert not Release("2.0.1").has("TrainJob", "podSpecOverrides", "metadata")
