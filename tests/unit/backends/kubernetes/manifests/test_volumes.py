"""Volumes of a cell in the objects of its job."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.backends.kubernetes.apis import OPERATOR_V1, TRAINER, Api, template_holder
from ciao_kernel.backends.kubernetes.manifests import pod_security, volumes
from ciao_kernel.errors import SpecError
from ciao_kernel.magics.directives.volumes import Volumes
from ciao_kernel.model import (
    JobSpec,
    Owner,
    ReplicaGroup,
    Source,
    SourceFile,
    Volume,
    VolumeKind,
)
from ciao_kernel.plugins import Plan
from tests.unit.backends.kubernetes.manifests.test_manifest import REGISTRY, objects, pod

HEAD = "%framework=tensorflow\n%worker=1\n"
ALL = "data/a:in:ro nfs://h/e:/nfs tmp:1Gi:t memory:2Gi:m"


def test_each_source_has_its_volume_and_its_mount() -> None:
    spec = pod(objects(f"{HEAD}%volume={ALL}\n"), "Worker")["spec"]
    assert [one for one in spec["volumes"] if one["name"].startswith("volume-")] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "volume-1", "nfs": {"server": "h", "path": "/e"}},
        {"name": "volume-2", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "volume-3", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
    ]
    mounts = spec["containers"][0]["volumeMounts"]
    assert [one for one in mounts if one["name"].startswith("volume-")] == [
        {"name": "volume-0", "mountPath": "/ciao/in", "subPath": "a", "readOnly": True},
        {"name": "volume-1", "mountPath": "/nfs"},
        {"name": "volume-2", "mountPath": "/ciao/t"},
        {"name": "volume-3", "mountPath": "/ciao/m"},
    ]


def test_a_restricted_pod_has_a_group_only_for_claims() -> None:
    context = pod(pod_security.secured(objects(f"{HEAD}%volume=data:x\n")), "Worker")["spec"]
    assert context["securityContext"]["fsGroup"] == volumes.FS_GROUP
    assert context["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    other = pod(pod_security.secured(objects(f"{HEAD}%volume=tmp:x\n")), "Worker")["spec"]
    assert "fsGroup" not in other["securityContext"]


def test_a_volume_cannot_hide_the_program() -> None:
    spec = JobSpec("tensorflow", volumes=(Volume(VolumeKind.TMP, "ciao_cell.py"),))
    source = Source(SourceFile("ciao_cell.py", b"", size=0), (), ())
    framework = REGISTRY.framework("tensorflow")
    plan = Plan(None, spec, framework, source, Path("/"), "", Owner("ada"))
    with pytest.raises(SpecError, match=r"tmp:ciao_cell\.py and the program's file ciao_cell\.py"):
        volumes.check(plan)


def test_a_folder_of_the_node_needs_a_setting() -> None:
    source = Source(SourceFile("ciao_cell.py", b"", size=0), (), ())
    framework = REGISTRY.framework("tensorflow")
    spec = JobSpec("tensorflow", volumes=Volumes().parse("host:/mnt/data/a:in:ro"))
    plan = Plan(None, spec, framework, source, Path("/"), "", Owner("ada"))
    for allowed in ((), ("/mnt/dat",), ("/mnt/data/a/b",)):
        with pytest.raises(SpecError, match="is a folder of the node, which no setting allows"):
            volumes.check(plan, allowed)
    for allowed in (("/mnt/data",), ("/other", "/mnt/data/a/"), ("/",)):
        volumes.check(plan, allowed)
    assert volumes.sources(spec.volumes) == [
        {"name": "volume-0", "hostPath": {"path": "/mnt/data/a", "type": "Directory"}}
    ]
    assert volumes.mounts(spec.volumes, "/ciao") == [
        {"name": "volume-0", "mountPath": "/ciao/in", "readOnly": True}
    ]


def test_a_pod_has_each_claim_as_one_volume() -> None:
    """A kubelet would wait without an end for the second one."""
    asked = Volumes().parse("data/a:in:ro other:x:ro data/b:out")
    spec = {
        "containers": [{"volumeMounts": volumes.mounts(asked, "/ciao")}],
        "initContainers": [{"volumeMounts": [{"name": "volume-2", "mountPath": "/c"}]}, {}],
        "volumes": [{"name": "shm", "emptyDir": {}}, *volumes.sources(asked)],
    }
    found = volumes.one_for_each_claim(spec)
    assert found["volumes"] == [
        {"name": "shm", "emptyDir": {}},
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "volume-1", "persistentVolumeClaim": {"claimName": "other", "readOnly": True}},
    ]
    assert found["containers"][0]["volumeMounts"] == [
        {"name": "volume-0", "mountPath": "/ciao/in", "subPath": "a", "readOnly": True},
        {"name": "volume-1", "mountPath": "/ciao/x", "readOnly": True},
        {"name": "volume-0", "mountPath": "/ciao/out", "subPath": "b"},
    ]
    copies = {"name": "volume-0", "mountPath": "/c"}
    assert found["initContainers"] == [{"volumeMounts": [copies]}, {}]


def test_a_checkpoint_on_the_claim_of_a_volume_shares_its_volume() -> None:
    text = f"{HEAD}%name=mnist\n%volume=data:in:ro\n%checkpoint=data/runs\n%output=x/ by:claim\n"
    spec = pod(objects(text), "Worker")["spec"]
    claims = [one for one in spec["volumes"] if "persistentVolumeClaim" in one]
    assert claims == [{"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}}]


@pytest.mark.parametrize("api", [OPERATOR_V1, TRAINER])
def test_a_volume_behind_a_role_is_in_its_pods_alone(api: Api) -> None:
    text = (
        "%framework=tensorflow\n%volume=all:all\n%ps=1;%volume=tmp:scratch\n"
        "%worker=2;%volume=data:input/train:ro\n%output=out/\n"
    )
    made = objects(text, api=api)
    found = {
        role.lower(): one["spec"]
        for role, one in template_holder.pod_templates(made.holder).items()
    }
    places, channels, kept = {}, {}, {}
    for role, spec in found.items():
        (program,) = spec["containers"]
        named = {one["name"]: one for one in spec["volumes"]}
        mounts = [one for one in program["volumeMounts"] if one["name"].startswith("volume-")]
        assert {one["name"] for one in mounts} == {n for n in named if n.startswith("volume-")}
        places[role] = [one["mountPath"] for one in mounts]
        names = [one["name"] for one in program["env"]]
        channels[role] = [one for one in names if one.startswith(("SM_CHANNEL", "CIAO_INPUT"))]
        kept[role] = [
            word for word in ("all", "scratch", "input/train") if word in program["command"]
        ]
    assert places == {
        "ps": ["/ciao/all", "/ciao/scratch"],
        "worker": ["/ciao/all", "/ciao/input/train"],
    }
    assert channels == {
        "ps": ["SM_CHANNEL_ALL"],
        "worker": ["CIAO_INPUT", "SM_CHANNEL_ALL", "SM_CHANNEL_TRAIN"],
    }
    assert kept == {"ps": ["all", "scratch"], "worker": ["all", "input/train"]}
    ps = found["ps"]["volumes"]
    assert not any("data" in str(one.get("persistentVolumeClaim")) for one in ps)


def test_a_volume_of_a_role_cannot_hide_the_program() -> None:
    own = (Volume(VolumeKind.TMP, "ciao_cell.py"),)
    spec = JobSpec("tensorflow", (ReplicaGroup("worker", 1, volumes=own),))
    source = Source(SourceFile("ciao_cell.py", b"", size=0), (), ())
    plan = Plan(None, spec, REGISTRY.framework("tensorflow"), source, Path("/"), "", Owner("ada"))
    with pytest.raises(SpecError, match=r"tmp:ciao_cell\.py and the program's file ciao_cell\.py"):
        volumes.check(plan)
