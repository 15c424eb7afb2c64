"""Which pods are held for their files."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes import output_sidecar
from ciao_kernel.model.spec import OutputWay

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
    assert output_sidecar.is_held(item) is held


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
    assert output_sidecar.sends(item) is way
    assert way is None or not output_sidecar.is_held(item)


def test_a_schema_that_drops_the_restart_policy_is_noticed() -> None:
    def template(**more: str) -> dict[str, Any]:
        return {"spec": {"initContainers": [{"name": "unpack"}, {"name": "ciao-output", **more}]}}

    assert output_sidecar.is_native([template(restartPolicy="Always")])
    assert not output_sidecar.is_native([template(restartPolicy="Always"), template()])
    assert not output_sidecar.is_native(
        [{"spec": {"initContainers": [{"name": "ciao-output-log"}]}}]
    )
