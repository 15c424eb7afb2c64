"""The claim by which files come back, and the pod that reads it."""

from __future__ import annotations

from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.output import output_claim
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, SpecError
from ciao_kernel.model import Checkpoint, JobSpec, Replica, ReplicaGroup, Volume, VolumeKind
from ciao_kernel.session import planning

TOKEN = "0123456789abcdef" * 2
WORKER = Replica("worker", 1)


def volume(where: str, claim: str = "data", path: str = "", *, read_only: bool = False) -> Volume:
    return Volume(VolumeKind.CLAIM, where, claim, path, read_only=read_only)


@pytest.mark.parametrize(
    ("setting", "checkpoint", "volumes", "place"),
    [
        ("results/team", Checkpoint("runs"), [volume("data")], "results/team"),
        ("", Checkpoint("runs", "a"), [volume("data")], "runs/a"),
        ("", Checkpoint(), [volume("data")], "kept/b"),
        ("", None, [volume("in", "old", read_only=True), volume("data", "new", "x")], "new"),
    ],
)
def test_the_claim_is_that_of_the_setting_the_checkpoint_or_a_volume(
    setting: str, checkpoint: Checkpoint | None, volumes: list[Volume], place: str
) -> None:
    spec = JobSpec("python", checkpoint=checkpoint, volumes=tuple(volumes))
    settings = Settings(output_claim=setting, checkpoint="kept/b")
    assert str(output_claim.place(spec, settings)) == place


def test_the_claim_of_one_role_is_not_mounted_in_the_others() -> None:
    own = (volume("data", "own"),)
    groups = (ReplicaGroup("ps", 1), ReplicaGroup("worker", 2, volumes=own))
    with pytest.raises(SpecError, match="by:claim needs a claim"):
        output_claim.place(JobSpec("python", groups), Settings())
    assert str(output_claim.place(JobSpec("python", groups[1:]), Settings())) == "own"
    inside = JobSpec("python", groups, outputs=("data/x", "by:claim"))
    with pytest.raises(SpecError, match="its files stay in it"):
        planning.check_outputs(inside)


@pytest.mark.parametrize("setting", ["", "/home/ada/checkpoints"])
def test_without_a_claim_to_write_to_it_is_refused(setting: str) -> None:
    own = (volume("in", read_only=True), Volume(VolumeKind.TMP, "tmp"))
    spec = JobSpec("python", checkpoint=Checkpoint(), volumes=own)
    with pytest.raises(SpecError, match="by:claim needs a claim to which replicas may write"):
        output_claim.place(spec, Settings(checkpoint=setting))


def test_files_in_a_volume_come_back_by_claim_alone() -> None:
    def spec(one: Volume, *words: str) -> JobSpec:
        return JobSpec("python", outputs=("output/", *words), volumes=(one,))

    planning.check_outputs(spec(volume("output"), "by:claim"))
    with pytest.raises(SpecError, match="its files stay in it"):
        planning.check_outputs(spec(volume("output")))
    nfs = Volume(VolumeKind.NFS, "output", "host", "/x")
    with pytest.raises(SpecError, match="its files stay in it"):
        planning.check_outputs(spec(nfs, "by:claim"))


@pytest.mark.parametrize(
    ("note", "folder"),
    [
        (f"data/ciao-output/{TOKEN}", f"/ciao-claim/ciao-output/{TOKEN}/worker-1"),
        (f"data/a/b/ciao-output/{TOKEN}", f"/ciao-claim/a/b/ciao-output/{TOKEN}/worker-1"),
        (f"data/../ciao-output/{TOKEN}", None),
        (f"/ciao-output/{TOKEN}", None),
        ("data/ciao-output/..", None),
        ("data/models", None),
        (f"data/a\n\x1b[31m/ciao-output/{TOKEN}", None),
        (f"da\x1bta/ciao-output/{TOKEN}", None),
        (f"data/ciao-output/{TOKEN}/../..", None),
        ("", None),
    ],
)
def test_only_a_folder_of_ciao_is_read_and_removed(note: str, folder: str | None) -> None:
    found = output_claim.kept({"metadata": {"annotations": {output_claim.FOLDER: note}}})
    assert (found and found.of(WORKER)) == folder


def pod(**more: Any) -> dict[str, Any]:
    """A pod of a restricted namespace, whose program writes to a volume too."""
    mounts = [
        {"name": "volume-0", "mountPath": "/ciao/work/output", "subPath": "run"},
        {"name": "volume-1", "mountPath": "/ciao/work/in"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    closed = {"allowPrivilegeEscalation": False}
    sidecar = {
        "name": output_claim.NAME,
        "image": "tools:1",
        "command": ["python3", "-I"],
        "resources": {"limits": {"memory": "256Mi"}},
        "securityContext": closed,
        "volumeMounts": [{"name": "output-claim", "mountPath": "/ciao-claim"}],
    }
    spec = {
        "containers": [{"name": "python", "workingDir": "/ciao/work", "volumeMounts": mounts}],
        "initContainers": [sidecar],
        "volumes": [
            {"name": "shm", "emptyDir": {}},
            {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "volume-1", "persistentVolumeClaim": {"claimName": "old"}},
            {"name": "output-claim", "persistentVolumeClaim": {"claimName": "results"}},
        ],
        "securityContext": {"runAsNonRoot": True},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "serviceAccountName": "trainer",
        "priorityClassName": "high",
        **more,
    }
    return {"metadata": {"name": "job-worker-0"}, "spec": spec}


def test_the_pod_that_reads_has_the_claims_and_restrictions_and_nothing_else() -> None:
    owner = {"apiVersion": "v1", "kind": "TFJob", "metadata": {"name": "job", "uid": "one"}}
    made = output_claim.reader(pod(nodeName="node-a"), ["output/"], 60, owner)
    spec = made["spec"]
    (container,) = spec["containers"]
    places = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert set(places) == {"/ciao-claim", "/ciao-volumes/output"}
    assert places["/ciao-volumes/output"] == {
        "name": "volume-0",
        "mountPath": "/ciao-volumes/output",
        "subPath": "run",
        "readOnly": True,
    }
    claims = [one.get("persistentVolumeClaim", {}).get("claimName") for one in spec["volumes"]]
    assert claims == ["results", "data"]
    assert spec["securityContext"] == {"runAsNonRoot": True}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False}
    assert container["resources"] == {"limits": {"memory": "256Mi"}}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert spec["serviceAccountName"] == "trainer"  # it may have the Secret for the image
    assert spec["automountServiceAccountToken"] is False
    assert "priorityClassName" not in spec
    assert "node-a" in str(spec["affinity"])
    notes = made["metadata"]["annotations"]
    assert notes["sidecar.istio.io/inject"] == "false"
    assert notes["linkerd.io/inject"] == "disabled"
    (reference,) = made["metadata"]["ownerReferences"]
    assert reference == {"apiVersion": "v1", "kind": "TFJob", "name": "job", "uid": "one"}


def test_a_container_that_a_cluster_has_added_first_is_not_the_program() -> None:
    injected = pod()
    injected["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "python"}
    containers = injected["spec"]["containers"]
    other = {"name": "istio-proxy", "volumeMounts": [{"name": "shm", "mountPath": "/output"}]}
    injected["spec"]["containers"] = [other, *containers]
    (found,) = output_claim.volumes_of(injected, ["output/"])
    assert found[0] == "output"
    assert found[1]["name"] == "volume-0"


@pytest.mark.parametrize("what", ["initContainers", "volumes"])
def test_pods_that_copy_nothing_to_a_claim_give_an_error(what: str) -> None:
    with pytest.raises(BackendError, match="no container ciao-output-claim with a claim"):
        output_claim.reader(pod(**{what: []}), ["output/"], 60, {})
    with pytest.raises(BackendError, match="no container ciao-output-claim with a claim"):
        output_claim.reader({"spec": {}}, ["output/"], 60, {})


def test_a_claim_that_the_pod_has_already_is_not_added_again() -> None:
    made = output_claim.Copying("data", f"ciao-output/{TOKEN}")
    known = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    assert made.mounted(known) == ([], [{"name": "b", "mountPath": "/ciao-claim"}])
    more, (mount,) = made.mounted(known[:1])
    assert more == [{"name": mount["name"], "persistentVolumeClaim": {"claimName": "data"}}]


def test_files_of_other_jobs_in_a_volume_are_none_of_a_job() -> None:
    header = "%volume=data:output results:in:ro\n%output=output/ by:claim\n"
    assert output_claim.also(header) == {
        "also": ["/ciao-volumes"],
        "without": ["output/ciao-output/"],
    }
    apart = "%volume=data:in\n%output=output/ by:claim\n"
    assert output_claim.also(apart) == {"also": [], "without": []}
