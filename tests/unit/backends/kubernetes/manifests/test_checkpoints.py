"""The folder of %checkpoint and the time of %grace in the objects of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.delivery import checkpoints
from ciao_kernel.errors import SpecError
from ciao_kernel.model import (
    Checkpoint,
    JobSpec,
    Owner,
    Source,
    SourceFile,
    Volume,
    VolumeKind,
)
from ciao_kernel.plugins import Plan
from tests.unit.backends.kubernetes.manifests.test_manifest import REGISTRY, objects, pod

HEAD = "%framework=tensorflow\n%worker=1\n"


def plan(path: str = "ciao_cell.py", *volumes: Volume) -> Plan:
    spec = JobSpec("tensorflow", checkpoint=Checkpoint("runs"), volumes=volumes)
    source = Source(SourceFile(path, b"", size=0), (), ())
    framework = REGISTRY.framework("tensorflow")
    return Plan(None, spec, framework, source, Path("/"), "", Owner("ada"))


def test_the_folder_is_mounted_beside_the_program_and_named_by_a_variable() -> None:
    spec = pod(objects(f"{HEAD}%name=mnist\n%checkpoint=runs/team\n"), "Worker")["spec"]
    (container,) = spec["containers"]
    assert {"name": "volume-0", "persistentVolumeClaim": {"claimName": "runs"}} in spec["volumes"]
    mount = {"name": "volume-0", "mountPath": "/ciao/checkpoint", "subPath": "team/mnist"}
    assert mount in container["volumeMounts"]
    assert {"name": "CIAO_CHECKPOINT", "value": "/ciao/checkpoint"} in container["env"]


def test_the_grace_starts_after_the_pause_in_which_others_end() -> None:
    spec = pod(objects(f"{HEAD}%grace=60s\n"), "Worker")["spec"]
    assert spec["terminationGracePeriodSeconds"] == 60 + Settings().linger
    (container,) = spec["containers"]
    assert container["lifecycle"]["preStop"]["sleep"]["seconds"] == Settings().linger


@pytest.mark.parametrize(
    ("setting", "volume"),
    [
        ("claim", Volume(VolumeKind.CLAIM, "checkpoint", "claim", "mnist")),
        ("claim/ada", Volume(VolumeKind.CLAIM, "checkpoint", "claim", "ada/mnist")),
    ],
)
def test_without_a_claim_the_setting_counts(setting: str, volume: Volume) -> None:
    spec = JobSpec("tensorflow", name="mnist", checkpoint=Checkpoint())
    assert checkpoints.on_cluster(spec, Settings(checkpoint=setting), "mnist-2") == (volume,)


@pytest.mark.parametrize(("setting", "why"), [("", "is empty"), ("/data", "this machine")])
def test_a_cluster_needs_a_claim(setting: str, why: str) -> None:
    spec = JobSpec("tensorflow", checkpoint=Checkpoint())
    with pytest.raises(SpecError, match=why) as caught:
        checkpoints.on_cluster(spec, Settings(checkpoint=setting), "job")
    assert caught.value.directive == "checkpoint"
    assert "%ciao config checkpoint=CLAIM" in (caught.value.hint or "")


def test_nothing_else_may_be_in_its_place() -> None:
    checkpoints.check(plan("checkpoints.py"))
    with pytest.raises(SpecError, match="where the program has the file checkpoint/a"):
        checkpoints.check(plan("checkpoint/a"))
    with pytest.raises(SpecError, match="where the volume tmp:checkpoint is"):
        checkpoints.check(plan("ciao_cell.py", Volume(VolumeKind.TMP, "checkpoint")))
