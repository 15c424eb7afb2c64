"""``%podPatch``: what a file may change of the pods of a job, and what it may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ciao_kernel.backends.kubernetes.apis import template_holder
from ciao_kernel.backends.kubernetes.manifests import job_objects, pod_patch, pod_security
from ciao_kernel.errors import SpecError, UsageError
from tests.unit.backends.kubernetes.manifests.test_manifest import objects

CELL = "%framework=tensorflow\n%ps=1\n%worker=2\n"


def patched(text: str, folder: Path, cell: str = CELL) -> job_objects.Objects:
    (folder / "patch.yaml").write_text(text)
    return pod_patch.apply(objects(cell), pod_patch.read("patch.yaml", folder), "patch.yaml")


def test_every_template_gets_it_and_the_programs_container_by_its_name(tmp_path: Path) -> None:
    made = patched(
        """
metadata: {annotations: {team: vision}}
spec:
  runtimeClassName: gvisor
  containers:
  - name: tensorflow
    securityContext: {capabilities: {add: [SYS_PTRACE]}}
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    volumeMounts: [{name: cache, mountPath: /cache}]
  volumes:
  - {name: cache, hostPath: {path: /var/cache}}
""",
        tmp_path,
    )
    plain = objects(CELL)
    for role in ("PS", "Worker"):
        pod = template_holder.pod_templates(made.job)[role]
        before = template_holder.pod_templates(plain.job)[role]
        assert pod["spec"]["runtimeClassName"] == "gvisor"
        assert pod["metadata"]["annotations"]["team"] == "vision"
        (program,) = pod["spec"]["containers"]
        (old,) = before["spec"]["containers"]
        assert program["command"] == old["command"]
        assert program["securityContext"] == {"capabilities": {"add": ["SYS_PTRACE"]}}
        assert program["env"][:-1] == old["env"]
        assert [one["mountPath"] for one in program["volumeMounts"]] == [
            *(one["mountPath"] for one in old["volumeMounts"]), "/cache",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        ({"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}, "the label app.kub"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy"),
        ({"spec": {"shareProcessNamespace": False}}, "spec.shareProcessNamespace"),
        ({"spec": {"volumes": [{"$patch": "replace"}]}}, "the volume "),
        ({"spec": {"containers": [{"name": "tensorflow", "command": ["sh"]}]}}, "command of the c"),
        ({"spec": {"containers": [{"name": "tensorflow", "args": ["x"]}]}}, "args of the con"),
        ({"spec": {"containers": [{"name": "tensorflow", "workingDir": "/"}]}}, "workingDir of"),
        (
            {"spec": {"containers": [{"name": "tensorflow", "$patch": "delete"}]}},
            "the container tensorflow",
        ),
        (
            {"spec": {"containers": [
                {"name": "tensorflow", "volumeMounts": [{"$patch": "replace"}]}
            ]}},
            "the mount ",
        ),
        (
            {"spec": {"containers": [
                {"name": "tensorflow", "env": [{"name": "CIAO_JOB", "value": "x"}]}
            ]}},
            "the variable CIAO_JOB",
        ),
    ],
)  # fmt: skip
def test_what_ciao_needs_stays(patch: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as found:
        patched(yaml.safe_dump(patch), tmp_path)
    assert found.value.message.startswith(f"patch.yaml changes {what}")
    assert found.value.directive == "podPatch"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spec: [", "patch.yaml is not YAML: while parsing"),
        ("[]", "patch.yaml is no patch of a pod template"),
        ("", "patch.yaml is no patch of a pod template"),
        ("kind: Pod\nspec: {}", "patch.yaml is no patch of a pod template"),
        ("metadata: {labels: {version: 2024-01-01}}", "patch.yaml has a value that JSON cannot"),
        ("spec: &a\n  securityContext: *a", "patch.yaml has a value that JSON cannot hold: Circ"),
        ("metadata: {labels: foo}", "patch.yaml changes metadata.labels, which ciao needs"),
        ("spec: {containers: [{image: x}]}", "patch.yaml cannot be merged: spec.containers[0]"),
    ],
)
def test_a_wrong_file_is_refused_with_the_reason(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as found:
        patched(text, tmp_path)
    assert found.value.message.startswith(message)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nosuch.yaml cannot be read: No such file"):
        pod_patch.read("nosuch.yaml", tmp_path)


def test_a_file_of_a_user_who_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no user has the name nosuchuser"):
        pod_patch.read("~nosuchuser/patch.yaml", tmp_path)


def test_other_objects_of_the_job_stay(tmp_path: Path) -> None:
    plain, made = objects(CELL), patched("spec: {priority: 1}", tmp_path)
    assert made.beside == plain.beside
    assert made.job["metadata"] == plain.job["metadata"]


def test_under_restricted_what_a_patch_adds_beside_the_required_fields_stays(
    tmp_path: Path,
) -> None:
    text = """
spec:
  securityContext: {runAsUser: 1000, runAsNonRoot: false}
  containers:
  - {name: tensorflow, securityContext: {readOnlyRootFilesystem: true, privileged: false}}
"""
    job = pod_security.secured(patched(text, tmp_path)).job
    spec = template_holder.pod_templates(job)["PS"]["spec"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (
        1000,
        True,
    )
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_under_restricted_a_patch_keeps_its_group_and_profile(tmp_path: Path) -> None:
    own = {
        "fsGroup": 2000,
        "fsGroupChangePolicy": "Always",
        "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"},
    }
    made = objects("%framework=tensorflow\n%worker=1\n%volume=data:data\n")
    patch = {"spec": {"securityContext": own}}
    job = pod_security.secured(pod_patch.apply(made, patch, "p.yaml")).job
    spec = template_holder.pod_templates(job)["Worker"]["spec"]
    assert spec["securityContext"] == {**own, "runAsNonRoot": True}
    only_group = pod_patch.apply(made, {"spec": {"securityContext": {"fsGroup": 2000}}}, "p.yaml")
    spec = template_holder.pod_templates(pod_security.secured(only_group).job)["Worker"]["spec"]
    assert spec["securityContext"]["fsGroup"] == 2000
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_under_restricted_capabilities_of_a_patch_are_not_lost(tmp_path: Path) -> None:
    """Pod Security refuses those that the namespace forbids, and says so."""
    text = """
spec:
  containers:
  - {name: tensorflow, securityContext: {capabilities: {add: [SYS_PTRACE], drop: [CHOWN]}}}
"""
    job = pod_security.secured(patched(text, tmp_path)).job
    (container, *_) = template_holder.pod_templates(job)["PS"]["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {
        "add": ["SYS_PTRACE"],
        "drop": ["ALL"],
    }
