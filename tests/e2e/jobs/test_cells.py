"""A cell becomes a job on the cluster, and all that it says comes back."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import yaml

from ciao_kernel.errors import SourceError, UsageError
from tests.e2e.jobs.conftest import CPU_REQUEST, Team


def test_the_program_arrives_byte_for_byte(team: Team) -> None:
    body = (
        "import hashlib, pathlib\r\n"
        "if True:\n\tdata = pathlib.Path(__file__).read_bytes()\r\n"
        "print(hashlib.sha256(data).hexdigest(), len(data))\n"
        "odd = '$HOME $(HOME) `ls` EOM \\' 漢字 é \u2028 %worker=9'\n"
        "# no line feed at the end"
    )
    ended = team.run("%framework=tensorflow\n%worker=1\n" + body)
    assert ended.error is None, ended.error
    source = ("#%framework=tensorflow\n#%worker=1\n" + body).encode()
    said = ended.display.data("worker-0").decode().split()
    assert said == [hashlib.sha256(source).hexdigest(), str(len(source))]


def test_variables_and_arguments_are_what_was_written(team: Team) -> None:
    ended = team.run(
        "%framework=tensorflow\n%worker=2;%cpu=100m;%memory=64Mi\n%successPolicy=allWorkers\n"
        "%envvar=A='$(HOME) $$ x' B=2\n%args='$(B)' --two 'a b'\n"
        "import os, sys\n"
        "print([os.environ['A'], os.environ['B'], sys.argv[1:], os.environ['CIAO_REPLICA']])\n"
    )
    assert ended.error is None, ended.error
    for index in range(2):
        line = f"['$(HOME) $$ x', '2', ['$(B)', '--two', 'a b'], 'worker-{index}']\n"
        assert ended.display.data(f"worker-{index}").decode() == line


def test_output_and_errors_come_in_the_order_of_the_program(team: Team) -> None:
    """The node reads two pipes of a container by turns; the program's children write too."""
    ended = team.run(
        "%framework=tensorflow\n%worker=1\n%lines=all\n"
        "import subprocess, sys\n"
        "for number in range(600):\n"
        "    print(number, file=(sys.stdout, sys.stderr)[number % 2], flush=True)\n"
        "subprocess.run(['sh', '-c', 'echo 600; echo 601 >&2; echo 602'])\n"
    )
    assert ended.error is None, ended.error
    assert ended.display.data("worker-0").split() == [b"%d" % number for number in range(603)]


@pytest.mark.second("faults", only="few")
@pytest.mark.second("faults", only="none")
@pytest.mark.parametrize("count", [0, 2, 60], ids=["none", "few", "many"])
def test_modules_and_files_lie_beside_the_program(team: Team, count: int) -> None:
    (team.folder / "helper.py").write_text("from pkg.inner import name\n")
    (team.folder / "pkg").mkdir()
    (team.folder / "pkg" / "__init__.py").write_text("")
    (team.folder / "pkg" / "inner.py").write_text("name = 'inner'\n")
    (team.folder / "data").mkdir()
    for number in range(count):
        (team.folder / "data" / f"{number}.bin").write_bytes(bytes([number, 0, 255]))
    ended = team.run(
        f"%framework=tensorflow\n%worker=1\n{'%files=data/' if count else ''}\n"
        "import os, pathlib, helper\n"
        "files = sorted(pathlib.Path('data').glob('*'))\n"
        "print(helper.name, len(files), sum(f.read_bytes()[0] for f in files))\n"
        "pathlib.Path('written').write_text('x')\n"
        "print(sorted(p.name for p in pathlib.Path('.').iterdir() if p.name != '__pycache__'))\n"
    )
    assert ended.error is None, ended.error
    said = ended.display.data("worker-0").decode().splitlines()
    assert said[0] == f"inner {count} {sum(range(count))}"
    # ciao's own folder is hidden: a program that lists its files with a star does not see it.
    there = [".ciao", "ciao_cell.py", *(["data"] if count else []), "helper.py", "pkg", "written"]
    assert said[1] == str(there)


def test_files_are_the_replicas_own(team: Team) -> None:
    (team.folder / "run.sh").write_text("#!/bin/sh\necho from a script >> conf/a.json\n")
    (team.folder / "run.sh").chmod(0o755)
    (team.folder / "conf").mkdir()
    (team.folder / "conf" / "a.json").write_text("{}\n")
    ended = team.run(
        "%framework=tensorflow\n%worker=1\n%files=run.sh conf/\n"
        "import os, pathlib, stat\n"
        "pathlib.Path('conf/a.json').write_text('changed\\n')\n"
        "print(bool(os.stat('run.sh').st_mode & stat.S_IXUSR))\n"
        "os.spawnl(os.P_WAIT, './run.sh', 'run.sh')\n"
        "print(pathlib.Path('conf/a.json').read_text())\n"
    )
    assert ended.error is None, ended.error
    assert ended.display.data("worker-0") == b"True\nchanged\nfrom a script\n\n"


@pytest.mark.second("faults")
def test_a_home_of_this_machine_is_no_place_in_a_pod(team: Team) -> None:
    ended = team.run("%framework=tensorflow\n%worker=1\n%python=~/venv/bin/python\nprint()\n")
    assert isinstance(ended.error, UsageError)
    assert "is not valid in a pod" in ended.error.message
    assert team.left() == []


def test_what_no_configmap_holds_is_an_error_and_nothing_is_created(team: Team) -> None:
    import random

    (team.folder / "large.bin").write_bytes(random.Random(1).randbytes(2_000_000))
    ended = team.run("%framework=tensorflow\n%worker=1\n%files=large.bin\nprint()\n")
    assert isinstance(ended.error, SourceError)
    assert "large.bin (1.9 MiB)" in ended.error.message
    assert team.left() == []


@pytest.mark.second("faults")
def test_a_name_that_is_taken_gets_a_number(team: Team) -> None:
    text = "%framework=tensorflow\n%worker=1\n%name=mine\nprint(1)\n"
    names = [team.run(text).job.name for _ in range(2)]
    assert names == ["mine", "mine-2"]


def test_what_a_cell_asks_for_stands_in_its_pods(team: Team) -> None:
    keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    team.namespace.create_objects({**keys, "stringData": {"TOKEN": "s3cret"}})
    ended = team.run(
        "%framework=tensorflow\n%name=asked\n%ps=1;%memory=32Mi\n%worker=1;%cpu=0.1\n"
        "%labels=team=vision\n%annotations=note='a b'\n%envsecret=keys\n%deadline=1h\n%ttl=2h\n"
        "%nodeSelector=kubernetes.io/os=linux\n%toleration=spot:NoSchedule\n"
        "import os, time\nprint(len(os.environ['TOKEN']))\n"
        "if 'ps' in os.environ['CIAO_REPLICA']: time.sleep(100)\n"
    )
    assert ended.error is None, ended.error
    assert ended.display.data("worker-0") == b"6\n"
    job = team.namespace.get("tfjob/asked")
    assert job["metadata"]["labels"]["team"] == "vision"
    assert job["metadata"]["annotations"]["note"] == "a b"
    policy = job["spec"]["runPolicy"]
    assert (policy["activeDeadlineSeconds"], policy["ttlSecondsAfterFinished"]) == (3600, 7200)
    assert set(job["spec"]["tfReplicaSpecs"]) == {"PS", "Worker"}
    of_ps = job["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]["resources"]
    assert of_ps == {
        "requests": {"cpu": CPU_REQUEST, "memory": "32Mi"},
        "limits": {"memory": "32Mi"},
    }
    pod = team.namespace.get("pod/asked-worker-0")["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "100m"}
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    tolerated = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
    assert tolerated in pod["tolerations"]


def test_a_dry_run_shows_what_kubectl_makes_the_same_job_of(team: Team) -> None:
    text = "%framework=tensorflow\n%name=shown\n%worker=2;%cpu=100m\n"
    shown = team.run(text + "%dryrun\nprint('ran')\n")
    assert shown.error is None, shown.error
    assert team.left() == []
    items = list(yaml.safe_load_all(shown.display.notices))
    assert [item["kind"] for item in items] == ["ConfigMap", "TFJob"]
    team.namespace.kubectl("create", "-f", "-", text=shown.display.notices)
    team.namespace.wait_for_job("tfjob/shown")
    assert team.namespace.kubectl("logs", "shown-worker-0") == "ran\n"
    made = team.namespace.get("tfjob/shown")["spec"]
    ran = team.run(text + "print('ran')\n")
    again = team.namespace.get(f"tfjob/{ran.job.name}")["spec"]
    source = items[0]["metadata"]["name"]
    same = json.dumps(again).replace(ran.job.name, "shown")
    same = re.sub(r"shown-[0-9a-f]{10}", source, same)
    assert json.loads(same) == made
