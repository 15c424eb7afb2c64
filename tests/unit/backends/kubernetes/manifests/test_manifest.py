"""From a cell to the objects of its job."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.apis import (
    JOB,
    OPERATOR_V1,
    TRAINER,
    Api,
    job_metadata,
    operator_v1,
    template_holder,
)
from ciao_kernel.backends.kubernetes.existing import details
from ciao_kernel.backends.kubernetes.manifests import job_objects, manifest, pod_security
from ciao_kernel.backends.kubernetes.output import output_sidecar
from ciao_kernel.backends.kubernetes.output.delivery import Delivery
from ciao_kernel.backends.kubernetes.output.output_registry import Push
from ciao_kernel.backends.kubernetes.output.output_store import Upload
from ciao_kernel.builders.configmap import LIMIT, ConfigMapBuilder
from ciao_kernel.config import Settings
from ciao_kernel.delivery.output import registry_program
from ciao_kernel.errors import SourceError, SpecError
from ciao_kernel.frameworks import pytorch, torchrun
from ciao_kernel.magics import parse
from ciao_kernel.model import Artifact, Job, JobSpec, Manifest, Owner, Replica, Source, SourceFile
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.plugins import Build, OperatorKind, Plan
from ciao_kernel.session.plugin_registry import Registry

REGISTRY = Registry(third_party={})


def source(program: bytes = b"print()\n", **files: bytes) -> Source:
    """A program and files; those that end in .py are modules that it imports."""
    others = [SourceFile(path, data, size=len(data)) for path, data in files.items()]
    modules = tuple(one for one in others if one.path.endswith(".py"))
    entry = SourceFile("ciao_cell.py", program, size=len(program))
    return Source(entry, modules, tuple(one for one in others if one not in modules))


def build(what: Source, python: str = "python3", job: str = "job") -> Artifact:
    nowhere = Path("/nowhere")
    ask = Build(what, JobSpec("tensorflow"), python, job, nowhere, nowhere)
    return asyncio.run(ConfigMapBuilder(Settings()).build(ask, print))


def objects(text: str, artifact: Artifact | None = None, **options: Any) -> job_objects.Objects:
    parsed = parse.parse(text + "print()\n", REGISTRY.table)
    framework = REGISTRY.framework(parsed.spec.framework)
    spec = framework.complete(parsed.spec)
    artifact = artifact or build(source())
    plan = Plan(spec.name, spec, framework, artifact.source, Path("/"), "header\n", Owner("ada"))
    job = Job("job", "kubernetes", framework.name, spec.replicas(), 1.0, "team", owner="ada")
    cpu, api = options.pop("cpu", ""), options.pop("api", OPERATOR_V1)
    upload, values = options.pop("upload", None), options.pop("values", None)
    settings = Settings(**options)
    way = next(iter(spec.output_ways), OutputWay.EXEC)
    return manifest.objects(
        plan,
        job,
        artifact,
        settings,
        "run-1",
        cpu=cpu,
        sleeps=True,
        api=api,
        delivery=Delivery(way, upload, values),
    )


def pod(made: job_objects.Objects, role: str) -> Manifest:
    found: Manifest = template_holder.pod_templates(made.job)[role]
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


OPERATED = [
    one
    for one in REGISTRY._names("frameworks")
    if isinstance(REGISTRY.framework(one), OperatorKind)
]


@pytest.mark.parametrize("framework", OPERATED)
def test_the_kind_of_each_framework_is_known_with_its_rules(framework: str) -> None:
    header = f"%framework={framework}\n%worker=2\n%image=x\n"
    made = objects(header)
    plural = made.path.rpartition("/")[2]
    assert plural in operator_v1.KINDS
    (kind,) = (one for one in operator_v1._KINDS if one.specs in made.job["spec"])
    assert kind.plural == plural
    # An MPI job is never started again, so its framework refuses the policy for another reason.
    refused = kind.exit_code_restarts or kind.plural == "mpijobs"
    with pytest.raises(SpecError, match=r"ExitCode|again") if refused else contextlib.nullcontext():
        objects(f"{header}%restartPolicy=ExitCode\n")


def test_without_a_cpu_directive_a_replica_has_a_request_and_no_limit() -> None:
    text = "%framework=tensorflow\n%chief=1\n%ps=1;%memory=1Gi\n%worker=2;%cpu=2\n"
    made = objects(text, build(source(**{"a.txt": b"a"})), cpu="100m")
    asked = {role: pod(made, role)["spec"]["containers"][0]["resources"] for role in ROLES}
    assert asked == {
        "Chief": {"requests": {"cpu": "100m"}},
        "PS": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "Worker": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
    }
    for role in ROLES:  # the pod's request is the largest of its containers
        (first,) = pod(made, role)["spec"]["initContainers"]
        assert first["resources"] == asked[role]
    nothing = pod(objects(text), "Chief")["spec"]["containers"][0]["resources"]
    assert nothing == {}


ROLES = ("Chief", "PS", "Worker")


def test_a_pytorchjob_runs_torchrun_with_one_process_a_replica() -> None:
    made = objects("%framework=pytorch\n%worker=3\n")
    assert made.job["spec"]["nprocPerNode"] == "1"
    assert set(made.job["spec"]["pytorchReplicaSpecs"]) == {"Master", "Worker"}
    command = pod(made, "Master")["spec"]["containers"][0]["command"]
    assert command == list(torchrun.command("python3", ("/ciao/ciao_cell.py",)))


def test_roles_with_other_gpus_tell_torchrun_their_processes() -> None:
    made = objects("%framework=pytorch\n%master=1;%gpu=1\n%worker=2;%gpu=4\n")
    assert made.job["spec"]["nprocPerNode"] == "1"
    *run, _ = torchrun.command("python3", ("/ciao/ciao_cell.py",))
    commands = {
        role: pod(made, role)["spec"]["containers"][0]["command"] for role in ("Master", "Worker")
    }
    assert commands["Master"] == [*run, "/ciao/ciao_cell.py"]
    assert commands["Worker"] == [*run, "--nproc-per-node=4", "/ciao/ciao_cell.py"]


def test_a_replica_without_torchrun_is_the_only_process_of_its_pod() -> None:
    made = objects("%framework=pytorch\n%worker=1\n%runner=python\n")
    for role in ("Master", "Worker"):
        found = {
            one["name"]: one.get("value") for one in pod(made, role)["spec"]["containers"][0]["env"]
        }
        assert found["LOCAL_RANK"] == "0"


def test_a_replica_without_torchrun_is_told_the_rank_of_its_node() -> None:
    """By a program before the cell's command: the operator sets RANK behind all other variables."""
    made = objects("%framework=pytorch\n%worker=2\n%runner=python\n%args=a '$b'\n")
    before = ["python3", "-I", "-S", "-c", pytorch._OF_NODE]
    for role in ("Master", "Worker"):
        command = pod(made, role)["spec"]["containers"][0]["command"]
        assert command == [*before, "python3", "-u", "/ciao/ciao_cell.py", "a", "$$b"]
    assert "$" not in pytorch._OF_NODE


def test_secured_pods_ask_for_no_rights() -> None:
    files = build(source(**{"a.txt": b"a"}))
    made = objects("%framework=tensorflow\n%ps=1\n%worker=1\n", files)
    found = pod_security.secured(made)
    assert found.secured
    assert "securityContext" not in str(made.job)
    for role in ("PS", "Worker"):
        spec = pod(found, role)["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in (*spec["containers"], *spec["initContainers"]):
            assert one["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_nothing_is_taken_for_a_variable_of_kubernetes() -> None:
    made = objects("%framework=tensorflow\n%args='$(A)' '$$'\n%envvar=X='$(HOME)$'\n")
    container = pod(made, "Worker")["spec"]["containers"][0]
    assert container["command"][-2:] == ["$$(A)", "$$$$"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["X"] == "$$(HOME)$$"
    assert env["CIAO_REPLICA"] == "$(CIAO_ROLE)-$(CIAO_INDEX)"


@pytest.mark.parametrize(
    ("text", "label", "note"),
    [
        ("", "false", "false"),
        ("%labels=sidecar.istio.io/inject=true\n", "true", "true"),
        ("%annotations=sidecar.istio.io/inject=true\n", "true", "true"),
        ("%labels=sidecar.istio.io/inject=true\n%annotations=sidecar.istio.io/inject=false\n",
         "true", "false"),
    ],
)  # fmt: skip
def test_the_user_decides_about_a_sidecar(text: str, label: str, note: str) -> None:
    found = pod(objects("%framework=tensorflow\n" + text), "Worker")["metadata"]
    assert found["labels"]["sidecar.istio.io/inject"] == label
    assert found["annotations"]["sidecar.istio.io/inject"] == note
    assert found["labels"][job_metadata.MANAGED] == "ciao"


@pytest.mark.parametrize(
    ("text", "note"),
    [("", "disabled"), ("%annotations=linkerd.io/inject=enabled\n", "enabled")],
)
def test_the_user_decides_about_a_sidecar_of_linkerd(text: str, note: str) -> None:
    found = pod(objects("%framework=tensorflow\n" + text), "Worker")["metadata"]
    assert found["annotations"]["linkerd.io/inject"] == note


@pytest.mark.parametrize(
    ("made_for", "text", "selected"),
    [
        ("", "", None),
        ("arm64", "", {"kubernetes.io/arch": "arm64"}),
        ("arm64", "%nodeSelector=disk=ssd\n", {"kubernetes.io/arch": "arm64", "disk": "ssd"}),
        ("arm64", "%nodeSelector=kubernetes.io/arch=amd64\n", {"kubernetes.io/arch": "amd64"}),
    ],
)
def test_an_image_for_one_architecture_runs_on_its_nodes_only(
    made_for: str, text: str, selected: dict[str, str] | None
) -> None:
    artifact = replace(build(source()), architecture=made_for)
    made = objects("%framework=tensorflow\n%ps=1\n%worker=1\n" + text, artifact)
    for role in ("PS", "Worker"):
        assert pod(made, role)["spec"].get("nodeSelector") == selected


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


def test_a_framework_without_a_known_image_asks_for_one() -> None:
    text = "%framework=xgboost\n"
    with pytest.raises(SpecError) as caught:
        objects(text)
    assert caught.value.directive == "framework"
    assert "needs an image" in caught.value.message
    assert "images.xgboost=" in caught.value.hint
    for given, options in (("%image=i:1\n", {}), ("", {"images": {"xgboost": "i:1"}})):
        made = pod(objects(text + given, **options), "Master")
        assert made["spec"]["containers"][0]["image"] == "i:1"
    objects(text + "%base=i:1\n")  # a builder makes it


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


@pytest.mark.parametrize("api", [OPERATOR_V1, JOB, TRAINER])
def test_only_warm_replicas_have_an_input(api: Api) -> None:
    text = "%framework=tensorflow\n%image=a/b:1\n%ps=1\n%worker=2\n"
    for more, expected in (("", {None}), ("%warm\n", {True})):
        made = objects(text + more, api=api)
        pods = template_holder.pod_templates(made.holder).values()
        assert {pod["spec"]["containers"][0].get("stdin") for pod in pods} == expected


def test_a_job_is_read_again_from_its_object() -> None:
    made = objects("%framework=tensorflow\n%ps=1\n%worker=2\n")
    job = job_metadata.job(made.job, 5.0)
    assert [str(one) for one in job.replicas] == ["ps-0", "worker-0", "worker-1"]
    assert (job.name, job.place, job.owner, job.created) == ("job", "team", "ada", 5.0)
    assert str(job_metadata.decider(made.job)) == "worker-0"


@pytest.mark.parametrize("notes", [{}, {"ciao-kernel/replicas": "worker=x"}])
def test_an_object_of_somebody_else_is_no_job(notes: dict[str, str]) -> None:
    item = {"metadata": {"name": "a", "namespace": "b", "annotations": notes}}
    with pytest.raises((KeyError, ValueError)):
        job_metadata.job(item, 0.0)


@pytest.mark.parametrize("uid", ["/../..", "..", "a/b", "a" * 65, "a\0", "a\n"])
def test_a_uid_of_an_annotation_leads_to_no_other_folder(uid: str) -> None:
    item = objects("%framework=tensorflow\n").job
    item["metadata"]["annotations"][job_metadata.FIRST_UID] = uid
    with pytest.raises(ValueError, match="not a uid"):
        job_metadata.job(item, 0.0)


def test_a_few_modules_are_a_key_each_and_bytes_stay_bytes() -> None:
    made = build(source(b"\xef\xbb\xbfx = '\xc3\xa9'\r\n", **{"a/b.py": b"\xff\0", "c.py": b"c"}))
    (item,) = made.objects
    assert item["immutable"] is True
    assert item["data"]["program.py"].encode() == b"\xef\xbb\xbfx = '\xc3\xa9'\r\n"
    assert base64.b64decode(item["binaryData"]["file-0"]) == b"\xff\0"
    places = {one["mountPath"]: one.get("subPath") for one in made.mounts}
    assert places["/ciao/a/b.py"] == "file-0"
    assert places["/ciao/ciao_cell.py"] == "program.py"
    assert not made.init_containers


def packed(made: Artifact) -> dict[str, tuple[bytes, int]]:
    """What the init container unpacks: bytes and mode of each file."""
    data = base64.b64decode(made.objects[0]["binaryData"]["files.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name: (tar.extractfile(one).read(), one.mode) for one in tar.getmembers()}  # type: ignore[union-attr]


def test_files_are_packed_so_that_a_replica_may_write_to_them(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    entry = SourceFile("ciao_cell.py", b"print()\n", size=8)
    files = (SourceFile("run.sh", origin=script, size=10), SourceFile("d/a.csv", b"1", size=1))
    made = build(Source(entry, files=files))
    assert packed(made) == {"run.sh": (b"#!/bin/sh\n", 0o755), "d/a.csv": (b"1", 0o644)}
    assert made.init_containers[0]["command"][0] == "python3"
    assert [one["mountPath"] for one in made.mounts] == ["/ciao", "/ciao/ciao_cell.py"]


def test_many_modules_are_packed_the_same_way_each_time() -> None:
    files = {f"d/m{n}.py": str(n).encode() for n in range(40)}
    first, second = (build(source(**files)) for _ in range(2))
    assert first.objects == second.objects
    assert len(packed(first)) == 40


def test_other_content_is_another_name() -> None:
    names = {build(source(text)).objects[0]["metadata"]["name"] for text in (b"a", b"b", b"a")}
    assert len(names) == 2
    assert all(name.startswith("job-") for name in names)


def test_a_source_that_fits_nowhere_is_an_error_that_names_the_largest() -> None:
    import random

    data = random.Random(2).randbytes(LIMIT)
    with pytest.raises(SourceError, match=r"big\.bin \(1\.0 MiB\)"):
        build(source(**{"big.bin": data, "small.bin": b"x"}))


def test_a_users_python_path_does_not_hide_a_builders_packages() -> None:
    artifact = replace(build(source()), env=(("PYTHONPATH", "/opt/ciao/site"),))
    header = "%framework=tensorflow\n%envvar=PYTHONPATH=/data/lib\n"
    container = pod(objects(header, artifact), "Worker")["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["PYTHONPATH"] == "/opt/ciao/site:/data/lib"


def test_a_program_in_a_package_keeps_its_place_in_the_pod() -> None:
    entry = SourceFile("pkg/train.py", b"print()\n", size=8)
    first = SourceFile("pkg/__init__.py", b"", size=0)
    artifact = build(Source(entry, (first,), module="pkg.train"))
    paths = {mount["mountPath"] for mount in artifact.mounts}
    assert paths == {"/ciao", "/ciao/pkg/train.py", "/ciao/pkg/__init__.py"}
    made = objects("%framework=tensorflow\n%worker=1\n", artifact)
    container = pod(made, "Worker")["spec"]["containers"][0]
    assert container["workingDir"] == "/ciao"
    assert container["command"][-2:] == ["-m", "pkg.train"]
    packaged = Job("job", "kubernetes", "tensorflow", (), 1.0, "team", "/ciao/pkg/train.py")
    packaged = replace(packaged, root="/ciao")
    item = {"metadata": {"name": "job", "namespace": "team"}}
    for one, annotated in ((packaged, True), (replace(packaged, root=""), False)):
        notes = job_metadata.notes(one, "run", Replica("worker", 0), ())
        assert ("ciao-kernel/workdir" in notes) is annotated
        item["metadata"]["annotations"] = notes
        assert job_metadata.job(item, 1.0).workdir == one.workdir


def test_the_backoff_limit_of_an_elastic_job_is_torchruns() -> None:
    """The operator's would count pods that were lost, and fail the job with the first for 0."""
    text = "%framework=pytorch\n%worker=2\n%backoffLimit=0\n"
    plain = objects(text).job["spec"]
    elastic = objects(f"{text}%min=1\n").job["spec"]
    assert plain["runPolicy"]["backoffLimit"] == 0
    assert "backoffLimit" not in elastic["runPolicy"]
    assert elastic["elasticPolicy"]["maxRestarts"] == 0


# ------------------------------------------------------------------------ files of %output


def test_the_role_that_decides_alone_keeps_values_that_are_files() -> None:
    made = objects(
        "%framework=tensorflow\n%chief=1\n%worker=2\n%output=loss by:log\n",
        values=Replica("chief", 0),
    )
    specs = {role: pod(made, role)["spec"] for role in ("Chief", "Worker")}
    assert "initContainers" not in specs["Worker"]
    assert "CIAO_RESULT_FILES" not in str(specs["Worker"])
    assert [one["name"] for one in specs["Chief"]["initContainers"]] == ["ciao-output-log"]
    env = {one["name"]: one.get("value") for one in specs["Chief"]["containers"][0]["env"]}
    assert env["CIAO_RESULT_FILES"] == "/ciao/.ciao-values"
    assert (env["CIAO_RESULT_MOST"], env["CIAO_RESULT_FROM"]) == ("4194304", "chief-0")


def test_the_only_template_keeps_values_whichever_role_it_is_made_for() -> None:
    text = "%framework=tensorflow\n%ps=1\n%worker=2\n%output=loss\n"
    made = objects(text, values=Replica("worker", 0), api=JOB)
    spec = made.job["spec"]["template"]["spec"]
    assert "ciao-output" in [one["name"] for one in spec["initContainers"]]
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert env["CIAO_RESULT_FROM"] == "worker-0"


def test_files_are_kept_by_a_native_sidecar_that_sees_the_folder_of_the_program() -> None:
    limits = "%cpu=2\n%memory=4Gi\n%gpu=1\n"
    text = f"%framework=tensorflow\n%worker=1\n{limits}%files=a.txt\n%output=model/ log.csv loss\n"
    spec = pod(objects(text, stop_grace=7.0, fetch_wait=30.0), "Worker")["spec"]
    (program,), (*_, sidecar) = spec["containers"], spec["initContainers"]
    keeper = ["python3", "-I", "-S", "/ciao/.ciao/ciao_output_keeper.py"]
    run = ["run", "/ciao-output", "7", "", "10000000000", "model/", "log.csv", "--", "python3"]
    assert program["command"][:13] == keeper + run
    assert sidecar["command"] == [*keeper, "keep", "/ciao-output", "30"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["workingDir"] == "/ciao"
    assert sidecar["env"] == [{"name": "CIAO_HELD", "value": "/ciao-output"}]
    assert sidecar["resources"] == {
        "requests": {"cpu": "250m", "memory": "256Mi"},
        "limits": {"cpu": "250m", "memory": "256Mi"},
    }
    assert {"name": "output", "emptyDir": {}} in spec["volumes"]
    assert all(one in sidecar["volumeMounts"] for one in build(source()).mounts)


@pytest.mark.parametrize(("workers", "linger"), [(1, "0"), (2, "3")])
def test_by_the_log_the_sidecar_writes_the_files_and_the_pod_is_not_held(
    workers: int, linger: str
) -> None:
    text = f"%framework=tensorflow\n%worker={workers}\n%output=a$b/ loss by:log\n"
    made = pod(objects(text, linger=3.0, stop_grace=7.0), "Worker")
    (program,), (*_, sidecar) = made["spec"]["containers"], made["spec"]["initContainers"]
    keeper = ["python3", "-I", "-S", "/ciao/.ciao/ciao_output_keeper.py"]
    run = ["run", "/ciao-output", "7", "", "4194304", "a$$b/", "--"]
    assert program["command"][:11] == keeper + run
    tell = ["tell", "/ciao-output", "30", linger, "4194304", "a$$b/"]
    assert (sidecar["name"], sidecar["command"]) == ("ciao-output-log", keeper + tell)
    assert made["spec"]["terminationGracePeriodSeconds"] == 40
    assert output_sidecar.grace(made) == 40.0


def test_addresses_in_a_bucket_are_in_the_sidecar_alone_and_never_shown() -> None:
    upload = Upload("a" * 32, '{"worker-0": "https://host/b?X-Amz-Signature=$1"}')
    text = "%framework=tensorflow\n%worker=1\n%output=by:s3\n"
    made = objects(text, upload=upload)
    worker = pod(made, "Worker")
    (program,), (*_, sidecar) = worker["spec"]["containers"], worker["spec"]["initContainers"]
    assert sidecar["name"] == "ciao-output-s3"
    send = ["send", "/ciao-output", "30", "2", "0", "4900000000", "output/"]
    assert sidecar["command"][4:] == send
    several = pod(objects(text.replace("=1", "=2"), upload=upload, linger=3.0), "Worker")
    assert several["spec"]["initContainers"][-1]["command"][8] == "3"
    told = {one["name"]: one.get("value") for one in sidecar["env"]}
    uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert {"name": "CIAO_POD_UID", "valueFrom": uid} in sidecar["env"]
    assert told["CIAO_OUTPUT_ADDRESSES"] == upload.addresses.replace("$", "$$")
    assert worker["metadata"]["annotations"]["ciao-kernel/output-token"] == "a" * 32
    assert "Signature" not in json.dumps(program)
    assert "Signature" in json.dumps(made.job)
    assert "Signature" not in json.dumps(details.shown(made.job))
    assert "Signature" not in repr(upload)


@pytest.mark.parametrize("secret", ["", "push"])
def test_the_password_of_a_registry_is_in_the_sidecar_alone(secret: str) -> None:
    upload = Push('{"url": "https://host", "authority": "a$b"}', "the program", secret)
    text = "%framework=tensorflow\n%worker=1\n%output=by:registry\n"
    made = objects(text, upload=upload)
    spec = pod(made, "Worker")["spec"]
    (program,), (*_, sidecar) = spec["containers"], spec["initContainers"]
    assert sidecar["name"] == "ciao-output-registry"
    *start, loader = sidecar["command"][:5]
    # Nothing of a folder that the program could write to.
    assert (start, loader) == (["python3", "-I", "-S", "-c"], registry_program.LOADER)
    words = ["push", "/ciao-output", "30", "2", "0", "10000000000", "output/"]
    assert sidecar["command"][5:] == words
    told = {one["name"]: one.get("value") for one in sidecar["env"]}
    assert told["CIAO_OUTPUT_REGISTRY"] == upload.told.replace("$", "$$")
    assert sidecar["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert "output-token" not in json.dumps(made.job)
    assert "the program" not in json.dumps(details.shown(made.job))
    mount = {"name": "push", "mountPath": "/ciao-registry", "readOnly": True}
    assert (mount in sidecar["volumeMounts"]) is bool(secret)
    assert "push" not in json.dumps(program)
    items = [{"key": ".dockerconfigjson", "path": "config.json"}]
    volume = {"name": "push", "secret": {"secretName": secret, "items": items}}
    assert (volume in spec["volumes"]) is bool(secret)
    # The processes of a pod see the files of each other's containers below /proc.
    assert spec["shareProcessNamespace"] is not bool(secret)


def test_a_limit_below_that_of_the_log_counts() -> None:
    text = "%framework=tensorflow\n%worker=1\n%output=by:log\n"
    made = pod(objects(text, fetch_limit=5000.0), "Worker")["spec"]["initContainers"][-1]
    assert made["command"][-2:] == ["5000", "output/"]


def test_a_deleted_pod_with_files_ends_long_before_its_own_grace_period() -> None:
    text = "%framework=tensorflow\n%worker=1\n%output\n%grace=20s\n"
    made = pod(objects(text, linger=3.0, fetch_wait=30.0), "Worker")
    assert made["spec"]["terminationGracePeriodSeconds"] == 3600
    assert output_sidecar.grace(made) == 53.0
    assert output_sidecar.grace(pod(objects(text.replace("%output\n", "")), "Worker")) is None


@pytest.mark.parametrize(("word", "seconds"), [("nan", 3), ("inf", 3), ("1e9", 3603), ("-9", 3)])
def test_a_wait_for_a_deleted_pod_with_files_ends_whatever_its_words(
    word: str, seconds: float
) -> None:
    made = pod(objects("%framework=tensorflow\n%worker=1\n%output\n", linger=3.0), "Worker")
    for one in (*made["spec"]["containers"], *made["spec"]["initContainers"]):
        at = one["command"].index("/ciao-output") + 1
        one["command"][at] = word if one["command"][at - 2] == "keep" else "0"
    assert output_sidecar.grace(made) == seconds


def test_the_grace_period_of_the_cell_comes_before_the_setting() -> None:
    text = "%framework=tensorflow\n%worker=1\n%output\n%grace=5m\n"
    (program,) = pod(objects(text, stop_grace=7.0), "Worker")["spec"]["containers"]
    assert program["command"][5:7] == ["/ciao-output", "300"]


def test_where_the_folder_is_in_the_image_the_program_leaves_copies() -> None:
    artifact = Artifact(source(), "python3", "/ciao", image="host/cells@sha256:1")
    spec = pod(objects("%framework=tensorflow\n%worker=1\n%output\n", artifact), "Worker")["spec"]
    (program,), (sidecar,) = spec["containers"], spec["initContainers"]
    assert program["command"][7:10] == ["/ciao-output/files", "10000000000", "output/"]
    assert {"name": "CIAO_COPIES", "value": "/ciao-output/files"} in sidecar["env"]
    assert sidecar["workingDir"] == "/ciao-output"
    assert sidecar["image"] == "host/cells@sha256:1"
    told = {one["name"]: one["value"] for one in program["env"] if "value" in one}
    assert told["CIAO_OUTPUT"] == told["SM_MODEL_DIR"] == "/ciao/output"


def test_programs_are_told_where_their_volumes_are() -> None:
    text = "%framework=tensorflow\n%worker=1\n%volume=data:input/train:ro\n"
    (program,) = pod(objects(text), "Worker")["spec"]["containers"]
    told = {one["name"]: one["value"] for one in program["env"] if "value" in one}
    assert told["CIAO_INPUT"] == "/ciao/input"
    assert told["SM_CHANNEL_TRAIN"] == "/ciao/input/train"


def test_a_job_without_files_of_output_has_no_sidecar() -> None:
    spec = pod(objects("%framework=tensorflow\n%worker=1\n%output=loss\n"), "Worker")["spec"]
    assert not [one for one in spec.get("initContainers", ()) if one["name"] == "ciao-output"]
    assert spec["terminationGracePeriodSeconds"] < 60


def test_event_files_are_kept_as_files_of_output_are() -> None:
    text = "%framework=tensorflow\n%worker=1\n%tensorboard=runs/one\n%output=model/\n"
    spec = pod(objects(text), "Worker")["spec"]
    (program,), (*_, sidecar) = spec["containers"], spec["initContainers"]
    assert program["command"][9:12] == ["model/", "runs/one/**/*tfevents*", "--"]
    told = {one["name"]: one["value"] for one in program["env"] if "value" in one}
    assert told["CIAO_LOGDIR"] == "/ciao/runs/one"
    assert "CIAO_OUTPUT" not in told
    assert sidecar["name"] == "ciao-output"
    alone = pod(objects("%framework=tensorflow\n%worker=1\n%tensorboard\n"), "Worker")["spec"]
    (program,) = alone["containers"]
    assert program["command"][9:11] == ["logs/**/*tfevents*", "--"]


def test_the_sidecar_sees_event_files_in_a_volume_and_no_other_volume() -> None:
    text = "%framework=tensorflow\n%worker=1\n%volume=data:input team:runs tmp:/scratch\n"
    text += "%tensorboard=runs/one\n"
    (*_, sidecar) = pod(objects(text), "Worker")["spec"]["initContainers"]
    places = [one["mountPath"] for one in sidecar["volumeMounts"]]
    assert "/ciao/runs" in places
    assert "/ciao/input" not in places
    assert "/scratch" not in places
    assert len(places) == len(set(places))
