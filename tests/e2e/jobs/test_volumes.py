"""Volumes of a cell on a real node: what one job writes to a claim, another job reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from ciao_kernel.errors import DirectiveError, JobFailed
from ciao_kernel.magics.directives.volumes import Volumes
from tests.cluster.namespace import Namespace
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import JOBS, RBAC, ROLE, made, rules

WRITES = """
import os
with open(f"data/{os.environ['CIAO_REPLICA']}.txt", "w") as file:
    file.write(os.environ["CIAO_REPLICA"])
for folder in ("/scratch", "/fast"):
    with open(f"{folder}/part", "w") as file:
        file.write("x")
print("fast is", [line.split()[2] for line in open("/proc/mounts") if " /fast " in line])
"""
READS = "import os\nprint(sorted(os.listdir('data/runs')), open('data/runs/worker-1.txt').read())\n"
REFUSED = "open('data/new', 'w')\n"


@pytest.mark.second("operators")
@pytest.mark.parametrize("api", ["v1", "job"])
def test_what_a_job_writes_to_a_claim_the_next_one_reads(
    namespace: Namespace,
    claim: str,
    api: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules(ROLE if api == "v1" else JOBS))
    # Both decide: else worker-1 is ended with worker-0, perhaps before it has written anything.
    header = f"%framework=tensorflow\n%api={api}\n%worker=2\n%successPolicy=allWorkers\n"
    scratch = "%volume=tmp:10Mi:/scratch memory:1Mi:/fast\n"

    wrote = team.run(f"{header}%volume={claim}/runs:data\n{scratch}{WRITES}")
    read = team.run(f"{header}%volume={claim}:data:ro\n{READS}")
    refused = team.run(f"{header}%volume={claim}/runs:data:ro\n{REFUSED}")

    assert wrote.error is None
    assert wrote.display.data("worker-0") == b"fast is ['tmpfs']\n"
    assert read.error is None
    assert read.display.data("worker-0") == b"['worker-0.txt', 'worker-1.txt'] worker-1\n"
    assert isinstance(refused.error, JobFailed)
    assert b"Read-only file system" in refused.display.data("worker-0")


LOOKS = """
import json, os, socket, time
mounts = {line.split()[1] for line in open("/proc/mounts")}
print(os.path.abspath("input") in mounts, os.environ.get("CIAO_INPUT"), "/scratch" in mounts)
print([os.path.realpath(one) for one in ("/input", "/output")])
with open("/output/" + os.environ["CIAO_REPLICA"], "w") as file:
    file.write("x")
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["worker"][0].split(":")
if config["task"]["type"] == "worker":
    socket.create_server(("", int(port))).accept()
while config["task"]["type"] == "chief":
    try:
        socket.create_connection((host, int(port)), 5)
        break
    except OSError:
        time.sleep(0.2)
"""
"""The chief, whose end is the job's, waits until worker-0 has printed and written its file."""


def test_a_volume_of_a_role_is_in_its_pods_alone_and_one_of_the_setting_in_all(
    namespace: Namespace, claim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, rules())
    ended = team.run(
        f"%framework=tensorflow\n%chief=1\n%worker=1;%volume={claim}:input\n%output\n{LOOKS}",
        job_volumes=Volumes().parse("tmp:10Mi:/scratch"),
    )
    assert ended.error is None, ended.error
    here = ended.job.workdir
    assert ended.display.data("worker-0").decode().splitlines() == [
        f"True {here}/input True",
        f"['{here}/input', '{here}/output']",
    ]
    assert ended.display.data("chief-0").decode().splitlines() == [
        "False None True",
        f"['/input', '{here}/output']",
    ]
    said = "mounted, because the setting jobVolumes names them: tmp:10Mi:/scratch"
    assert said in ended.display.notices
    folder = Path(ended.job.files) / "output"
    assert sorted(one.name for one in folder.iterdir()) == ["chief-0", "worker-0"]


@pytest.mark.second("operators")
def test_claims_that_cannot_be_used_are_told_before_a_job_exists(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made(namespace, tmp_path, monkeypatch, [*rules(), *rules(RBAC / "volume-role.yaml")])
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "no-such-class"}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "slow"}}
    resources = {"requests": {"storage": "1Gi"}}
    namespace.create_objects({**claim, "spec": {**spec, "resources": resources}})
    until(lambda: _said(namespace, "ProvisioningFailed"), "the cluster to tell why", 60)
    header = "%framework=tensorflow\n%worker=2\n%detach\n"

    missing = team.run(f"{header}%volume=nosuch:data\nprint()\n")
    assert isinstance(missing.error, DirectiveError)
    assert f"there is no claim nosuch in the namespace {namespace.name}." in missing.error.message
    assert team.left() == []

    waits = team.run(f"{header}%volume=slow:data\nprint()\n")
    assert waits.error is None, waits.error
    said = waits.display.notices
    assert "the claim slow has no disk yet, and the replicas wait for it: Provision" in said
    assert "the claim slow can be used on one node at a time (ReadWriteOnce)" in said


def _said(namespace: Namespace, reason: str) -> bool:
    return any(one.get("reason") == reason for one in namespace.get("events")["items"])
