"""Which pods are held for their files."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.output import output_sidecar, output_state
from ciao_kernel.backends.kubernetes.output.delivery import Delivery
from ciao_kernel.backends.kubernetes.output.output_claim import Copying
from ciao_kernel.config import Settings
from ciao_kernel.delivery.output import output_keeper
from ciao_kernel.delivery.replica_files import VALUES
from ciao_kernel.model import (
    Artifact,
    Checkpoint,
    JobSpec,
    Replica,
    Source,
    SourceFile,
    Volume,
    VolumeKind,
)
from ciao_kernel.model.outputs import OutputWay

RUNS: dict[str, Any] = {"running": {}}
ENDED: dict[str, Any] = {"terminated": {"exitCode": 0}}


FAILED: dict[str, Any] = {"terminated": {"exitCode": 1}}


def pod(
    program: dict[str, Any], keeper: dict[str, Any], policy: str = "Never", **meta: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "one", **meta},
        "spec": {"containers": [{"name": "tensorflow"}], "restartPolicy": policy},
        "status": {
            "containerStatuses": [{"name": "tensorflow", "state": program}],
            "initContainerStatuses": [{"name": "ciao-output", "state": keeper}],
        },
    }


@pytest.mark.parametrize(
    ("item", "held"),
    [
        (pod(ENDED, RUNS), True),
        (pod(FAILED, RUNS), True),
        (pod(ENDED, RUNS, "OnFailure"), True),
        (pod(FAILED, RUNS, "OnFailure"), False),  # it is started again
        (pod(ENDED, RUNS, "Always"), False),
        (pod(RUNS, RUNS), False),
        (pod(ENDED, ENDED), False),
        (pod(ENDED, RUNS, deletionTimestamp="2026-01-01T00:00:00Z"), False),
        ({"metadata": {}, "status": {}}, False),
        (None, False),
    ],
)
def test_a_pod_is_held_while_the_sidecar_outlives_the_program(item: Any, held: bool) -> None:
    assert output_state.is_held(item) is held


def told(
    program: dict[str, Any],
    writer: dict[str, Any],
    policy: str = "Never",
    name: str = "ciao-output-log",
    **meta: Any,
) -> dict[str, Any]:
    item = pod(program, writer, policy, **meta)
    item["status"]["initContainerStatuses"][0]["name"] = name
    return item


@pytest.mark.parametrize(
    ("item", "way"),
    [
        (told(ENDED, RUNS), OutputWay.LOG),
        (told(FAILED, ENDED), OutputWay.LOG),
        (told(ENDED, RUNS, name="ciao-output-s3"), OutputWay.S3),
        (told(ENDED, RUNS, name="ciao-output-registry"), OutputWay.REGISTRY),
        (told(ENDED, ENDED, name="ciao-output-claim"), OutputWay.CLAIM),
        (told(ENDED, ENDED, deletionTimestamp="2026-01-01T00:00:00Z"), OutputWay.LOG),
        (told(RUNS, RUNS), None),
        (told(FAILED, RUNS, "OnFailure"), None),
        (told(ENDED, {"waiting": {}}), None),
        (pod(ENDED, RUNS), None),
        (None, None),
    ],
)
def test_files_are_sent_when_the_program_has_ended(item: Any, way: OutputWay | None) -> None:
    assert output_state.sends(item) is way
    assert way is None or not output_state.is_held(item)


def test_a_schema_that_drops_the_restart_policy_is_noticed() -> None:
    def template(**more: str) -> dict[str, Any]:
        return {"spec": {"initContainers": [{"name": "unpack"}, {"name": "ciao-output", **more}]}}

    assert output_sidecar.is_native([template(restartPolicy="Always")])
    assert not output_sidecar.is_native([template(restartPolicy="Always"), template()])
    assert not output_sidecar.is_native(
        [{"spec": {"initContainers": [{"name": "ciao-output-log"}]}}]
    )


def volume(where: str, kind: VolumeKind = VolumeKind.CLAIM) -> Volume:
    return Volume(kind, where, "data")


ARTIFACT = Artifact(Source(SourceFile("cell.py", b"x", size=1)), "python3", "/ciao")


def given() -> dict[str, object]:
    """A pod whose program is in its image."""
    program = {"command": ["python3", "cell.py"], "image": "x", "resources": {}}
    return {
        "containers": [{**program, "volumeMounts": []}],
        "volumes": [],
        "terminationGracePeriodSeconds": 30,
    }


@pytest.mark.parametrize("way", [one for one in OutputWay if one is not OutputWay.AUTO])
def test_a_program_in_an_image_is_told_which_folders_are_volumes(way: OutputWay) -> None:
    """Event files come from a volume too, and what is mounted elsewhere is in no word."""
    spec = JobSpec(
        "python",
        outputs=("output/",),
        tensorboard="logs/run",
        checkpoint=Checkpoint("runs"),
        volumes=(volume("output/data"), volume("logs"), volume("/data"), volume("tmp")),
    )
    copying = Copying("results", "ciao-output/x") if way is OutputWay.CLAIM else None
    made = output_sidecar.add(given(), spec, ARTIFACT, Settings(), Delivery(way, copying))
    words = made["containers"][0]["command"]
    told = words[words.index(output_keeper.WITHOUT) + 1 : words.index("--")]
    assert told == ["output/data", "tmp", "checkpoint"]
    sidecar = made["initContainers"][0]["command"]
    assert (output_keeper.WITHOUT in sidecar) is (way is OutputWay.CLAIM)
    plain = output_sidecar.add(
        given(),
        JobSpec("python", outputs=("output/",)),
        ARTIFACT,
        Settings(),
        Delivery(way, copying),
    )
    assert output_keeper.WITHOUT not in str(plain)


@pytest.mark.parametrize("way", [one for one in OutputWay if one is not OutputWay.AUTO])
@pytest.mark.parametrize("paths", [(), ("output/",)])
def test_values_that_are_files_are_named_to_both_containers(
    way: OutputWay, paths: tuple[str, ...]
) -> None:
    spec = JobSpec("python", outputs=("value", *paths))
    copying = Copying("results", "ciao-output/x") if way is OutputWay.CLAIM else None
    made = output_sidecar.add(
        given(), spec, ARTIFACT, Settings(), Delivery(way, copying, Replica("worker", 0))
    )
    words = made["containers"][0]["command"]
    assert words[words.index("--") - 1 - len(paths) : words.index("--")] == [*paths, VALUES]
    sidecar = made["initContainers"][0]["command"]
    # Files hold a pod by exec in any case, and values only if there are some.
    assert (VALUES in sidecar) is (way is not OutputWay.EXEC or not paths)
    assert output_sidecar.grace({"spec": made}) is not None
    without = output_sidecar.add(given(), spec, ARTIFACT, Settings(), Delivery(way, copying))
    assert VALUES not in str(without)
