"""What XGBoost's framework makes of a spec, and which programs connect by themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.delivery.input.imports import gather
from ciao_kernel.frameworks import rabit
from ciao_kernel.model import Address, Artifact, Replica, Source, SourceFile
from tests.unit.test_frameworks import operators, spec

MASTER, ZERO, ONE = Replica("master", 0), Replica("worker", 0), Replica("worker", 1)


def test_the_environment_is_the_operators() -> None:
    framework, job = spec("%framework=xgboost %worker=2")
    assert framework.environment(job, ONE, operators(job, 9999)) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": "mnist-master-0.team.svc",
        "MASTER_PORT": "9999",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "WORKER_PORT": "9999",
        "WORKER_ADDRS": "mnist-worker-0.team.svc,mnist-worker-1.team.svc",
    }
    ports = {one: Address("127.0.0.1", 20000 + n) for n, one in enumerate((MASTER, ZERO, ONE))}
    told = [framework.environment(job, one, ports) for one in ports]
    assert [one["RANK"] for one in told] == ["0", "1", "2"]
    assert [one["WORKER_PORT"] for one in told] == ["20001", "20001", "20002"]
    framework, job = spec("%framework=xgboost")
    alone = framework.environment(job, MASTER, {MASTER: Address("127.0.0.1", 20000)})
    assert alone["WORLD_SIZE"] == "1"
    assert "WORKER_ADDRS" not in alone


_NAMES = """
import builtins, functools, socket, time
print = functools.partial(builtins.print, flush=True)
failures = iter([OSError(), OSError()])
def look(host, port, **_):
    print(host, port)
    for error in failures: raise error
    return [(socket.AF_INET,)]
socket.getaddrinfo, time.sleep = look, print
"""
_XGBOOST = """
import contextlib
from types import SimpleNamespace
config_context = lambda verbosity: contextlib.nullcontext()
class CommunicatorContext:
    def __init__(self, **how): self.how = how
    def __enter__(self): print("connects to", self.how["dmlc_tracker_uri"])
    def __exit__(self, *_): pass
collective = SimpleNamespace(CommunicatorContext=CommunicatorContext)
"""


def test_a_worker_connects_as_soon_as_the_name_of_the_master_is_known(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NAMES)
    (tmp_path / "xgboost.py").write_text(_XGBOOST)
    (tmp_path / "cell.py").write_text("print('trains')")
    ran = subprocess.run(
        rabit.CALLER.command(sys.executable, [str(tmp_path / "cell.py")]),
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "RANK": "1",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "mnist-master-0",
            "MASTER_PORT": "9999",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    look = "mnist-master-0 None"
    told = [look, "0.2", look, "0.2", look, "connects to mnist-master-0", "trains"]
    assert ran.stdout.splitlines() == told


def test_the_master_decides_and_is_always_there() -> None:
    framework, job = spec("%framework=xgboost %worker=2")
    assert (job.replicas(), framework.decider(job)) == ((MASTER, ZERO, ONE), MASTER)
    made = framework.manifest(job, dict.fromkeys(("master", "worker"), pod()))
    assert (made.kind, made.plural) == ("XGBoostJob", "xgboostjobs")
    replicas = made.spec["xgbReplicaSpecs"]
    assert {role: one["replicas"] for role, one in replicas.items()} == {"Master": 1, "Worker": 2}
    assert replicas["Master"]["template"]["spec"]["containers"][0]["name"] == "xgboost"


def pod() -> dict[str, object]:
    return {"metadata": {}, "spec": {"containers": [{"image": "i"}]}}


def command(header: str, *codes: bytes) -> tuple[str, ...]:
    """The command of a program, with local modules."""
    framework, job = spec(f"%framework=xgboost {header}")
    entry, *modules = [SourceFile(f"m{number}.py", code) for number, code in enumerate(codes)]
    source = Source(entry, tuple(modules))
    return framework.command(job, Artifact(source, "/env/bin/python", "/job"))


def test_the_program_runs_in_a_communicator() -> None:
    *run, program, argument = command("%worker=1 %args=--x", b"import xgboost")
    assert run[:3] == ["/env/bin/python", "-u", "-c"]
    assert (program, argument) == ("/job/m0.py", "--x")
    assert "RabitTracker(" in run[3]
    compile(run[3], "the command", "exec")


@pytest.mark.parametrize(
    ("header", "codes"),
    [
        ("%worker=1 %runner=python", [b"import xgboost"]),
        ("%worker=0", [b"import xgboost"]),
        ("%worker=1", [b"from xgboost.tracker import RabitTracker"]),
        ("%worker=1", [b"import helper", b"from xgboost.tracker import RabitTracker"]),
    ],
)
def test_plain_python_runs_what_connects_by_itself(header: str, codes: list[bytes]) -> None:
    assert command(header, *codes) == ("/env/bin/python", "-u", "/job/m0.py")


def test_a_module_beside_the_notebook_may_connect_by_itself(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("from xgboost.tracker import RabitTracker\n")
    source = gather("import helper\n", tmp_path)
    framework, job = spec("%framework=xgboost %worker=1")
    found = framework.command(job, Artifact(source, "python3", "/job"))
    assert found[:2] == ("python3", "-u")
    assert found[2] != "-c"


def test_only_several_replicas_need_the_package_at_the_start() -> None:
    for header, needs in (("%worker=1", True), ("%dryrun", False), ("%runner=python", False)):
        framework, job = spec(f"%framework=xgboost {header}")
        assert framework.needs_package(job) is needs


@pytest.mark.parametrize(
    ("code", "itself"),
    [
        ("import xgboost as xgb\nxgb.train({}, d)", False),
        ("from xgboost import collective\nprint(collective.get_rank())", False),
        ("import xgboost.collective\nxgboost.collective.allreduce(a)", False),
        ("text = 'CommunicatorContext'", False),
        ("model.init()", False),
        ("x = (", False),
        ("import xgboost as xgb\nwith xgb.collective.CommunicatorContext(): pass", True),
        ("from xgboost.collective import CommunicatorContext", True),
        ("from xgboost.collective import init", True),
        ("from xgboost import collective\ncollective.init(dmlc_tracker_uri='h')", True),
        ("import xgboost as xgb\nxgb.collective.init()", True),
        ("from xgboost import tracker\ntracker.RabitTracker(3, 'h')", True),
        ("import xgboost.dask", True),
        ("from xgboost import dask", True),
        ("from xgboost.spark import SparkXGBClassifier", True),
    ],
)
def test_who_connects_by_itself(code: str, itself: bool) -> None:
    assert rabit.connects_itself(code.encode()) is itself
