"""From a cell to the objects of its job."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes import manifest, marks
from ciao_kernel.builders.configmap import LIMIT, ConfigMapBuilder
from ciao_kernel.config import Settings
from ciao_kernel.errors import SourceError
from ciao_kernel.magics import parse
from ciao_kernel.model import Artifact, Job, Manifest, Owner, Source, SourceFile
from ciao_kernel.plugins import Plan
from ciao_kernel.registry import Registry

REGISTRY = Registry(third_party={})


def source(program: bytes = b"print()\n", **files: bytes) -> Source:
    others = tuple(SourceFile(path, data, size=len(data)) for path, data in files.items())
    return Source(SourceFile("ciao_cell.py", program, size=len(program)), files=others)


def build(what: Source, python: str = "python3", job: str = "job") -> Artifact:
    return asyncio.run(ConfigMapBuilder().build(what, python, job, Path("/nowhere"), print))


def objects(text: str, artifact: Artifact | None = None, **options: Any) -> manifest.Objects:
    parsed = parse.parse(text + "print()\n", REGISTRY.table)
    framework = REGISTRY.framework(parsed.spec.framework)
    spec = framework.complete(parsed.spec)
    artifact = artifact or build(source())
    plan = Plan(spec.name, spec, framework, artifact.source, Path("/"), "header\n", Owner("ada"))
    job = Job("job", "kubernetes", framework.name, spec.replicas(), 1.0, "team", owner="ada")
    settings = Settings(**options)
    return manifest.objects(plan, job, artifact, settings, "run-1", sleeps=True)


def pod(made: manifest.Objects, role: str) -> Manifest:
    found: Manifest = manifest.pods_of(made.job)[role]
    return found


def test_a_tfjob_has_the_roles_that_the_cell_has() -> None:
    made = objects("%framework=tensorflow\n%ps=1;%memory=1Gi\n%worker=2;%cpu=2;%gpu=1\n")
    assert made.path == "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
    assert made.job["kind"] == "TFJob"
    replicas = made.job["spec"]["tfReplicaSpecs"]
    assert {role: one["replicas"] for role, one in replicas.items()} == {"PS": 1, "Worker": 2}
    assert {one["restartPolicy"] for one in replicas.values()} == {"Never"}
    worker = pod(made, "Worker")["spec"]["containers"][0]
    assert worker["name"] == "tensorflow"
    asked = {"cpu": "2", "nvidia.com/gpu": "1"}
    assert worker["resources"] == {"requests": asked, "limits": asked}
    assert pod(made, "PS")["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


def test_a_pytorchjob_runs_torchrun_with_one_process_a_replica() -> None:
    made = objects("%framework=pytorch\n%worker=3\n")
    assert made.job["spec"]["nprocPerNode"] == "1"
    assert set(made.job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    command = pod(made, "Master")["spec"]["containers"][0]["command"]
    assert command == ["python3", "-u", "-m", "torch.distributed.run", "/ciao/ciao_cell.py"]


def test_nothing_is_taken_for_a_variable_of_kubernetes() -> None:
    made = objects("%framework=tensorflow\n%args='$(A)' '$$'\n%envvar=X='$(HOME)$'\n")
    container = pod(made, "Worker")["spec"]["containers"][0]
    assert container["command"][-2:] == ["$$(A)", "$$$$"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["X"] == "$$(HOME)$$"
    assert env["CIAO_REPLICA"] == "$(CIAO_ROLE)-$(CIAO_INDEX)"


@pytest.mark.parametrize(
    ("policy", "operators"), [("running", "Running"), ("all", "Running"), ("none", "None")]
)
def test_the_clean_policy_is_spelt_as_the_operator_compares_it(policy: str, operators: str) -> None:
    made = objects(f"%framework=tensorflow\n%cleanPolicy={policy}\n")
    assert made.job["spec"]["runPolicy"]["cleanPodPolicy"] == operators
    assert "cleanPodPolicy" not in made.job["spec"]


def test_the_image_is_the_cells_then_the_settings_then_the_frameworks() -> None:
    def image(text: str, **options: Any) -> str:
        found = pod(objects("%framework=tensorflow\n" + text, **options), "Worker")
        return str(found["spec"]["containers"][0]["image"])

    named = {"tensorflow": "host/tf:1"}
    assert image("%image=mine:2\n", images=named) == "mine:2"
    assert image("", images=named) == "host/tf:1"
    assert image("").startswith("tensorflow/tensorflow:")


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("gpu=yes:NoSchedule", {"key": "gpu", "operator": "Equal", "value": "yes",
                                "effect": "NoSchedule"}),
        ("spot:NoExecute", {"key": "spot", "operator": "Exists", "effect": "NoExecute"}),
        ("dedicated", {"key": "dedicated", "operator": "Exists"}),
    ],
)  # fmt: skip
def test_tolerations_are_written_as_kubectl_writes_taints(
    text: str, toleration: dict[str, str]
) -> None:
    made = objects(f"%framework=tensorflow\n%toleration={text}\n")
    assert pod(made, "Worker")["spec"]["tolerations"] == [toleration]


def test_a_job_is_read_again_from_its_object() -> None:
    made = objects("%framework=tensorflow\n%ps=1\n%worker=2\n")
    job = marks.job(made.job, 5.0)
    assert [str(one) for one in job.replicas] == ["ps-0", "worker-0", "worker-1"]
    assert (job.name, job.place, job.owner, job.created) == ("job", "team", "ada", 5.0)
    assert str(marks.decider(made.job)) == "worker-0"


@pytest.mark.parametrize("notes", [{}, {"ciao-kernel/replicas": "worker=x"}])
def test_an_object_of_somebody_else_is_no_job(notes: dict[str, str]) -> None:
    item = {"metadata": {"name": "a", "namespace": "b", "annotations": notes}}
    with pytest.raises((KeyError, ValueError)):
        marks.job(item, 0.0)


def test_a_few_files_are_a_key_each_and_bytes_stay_bytes() -> None:
    made = build(source(b"\xef\xbb\xbfx = '\xc3\xa9'\r\n", **{"a/b.bin": b"\xff\0", "c.txt": b"c"}))
    (item,) = made.objects
    assert item["immutable"] is True
    assert item["data"]["program.py"].encode() == b"\xef\xbb\xbfx = '\xc3\xa9'\r\n"
    assert base64.b64decode(item["binaryData"]["file-0"]) == b"\xff\0"
    places = {one["mountPath"]: one.get("subPath") for one in made.mounts}
    assert places["/ciao/a/b.bin"] == "file-0"
    assert places["/ciao/ciao_cell.py"] == "program.py"
    assert not made.init_containers


def test_many_files_are_packed_the_same_way_each_time() -> None:
    files = {f"d/{n}.txt": str(n).encode() for n in range(40)}
    first, second = (build(source(**files)) for _ in range(2))
    assert first.objects == second.objects
    packed = base64.b64decode(first.objects[0]["binaryData"]["files.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        assert len(tar.getnames()) == 40
    assert first.init_containers[0]["command"][0] == "python3"


def test_other_content_is_another_name() -> None:
    names = {build(source(text)).objects[0]["metadata"]["name"] for text in (b"a", b"b", b"a")}
    assert len(names) == 2
    assert all(name.startswith("job-") for name in names)


def test_a_source_that_fits_nowhere_is_an_error_that_names_the_largest() -> None:
    import random

    data = random.Random(2).randbytes(LIMIT)
    with pytest.raises(SourceError, match=r"big\.bin \(1\.0 MiB\)"):
        build(source(**{"big.bin": data, "small.bin": b"x"}))
