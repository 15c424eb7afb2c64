"""What JAX's framework makes of a spec, against what the operator and JAX itself do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.frameworks import jax_rank
from ciao_kernel.model import Address, Replica
from tests.unit.test_frameworks import ARTIFACT, operators, spec

OMPI = {
    "OMPI_MCA_orte_hnp_uri": "1.0;tcp://127.0.0.1:1",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
}


@pytest.mark.parametrize("index", [0, 2])
def test_the_environment_has_the_operators_variables_and_jaxs(index: int) -> None:
    framework, job = spec("%framework=jax %worker=3")
    assert framework.environment(job, Replica("worker", index), operators(job, 6666)) == {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_ADDRESS": "mnist-worker-0.team.svc",
        "COORDINATOR_PORT": "6666",
        "NUM_PROCESSES": "3",
        "PROCESS_ID": str(index),
        "JAX_COORDINATOR_ADDRESS": "mnist-worker-0.team.svc:6666",
        "OMPI_COMM_WORLD_RANK": str(index),
        **OMPI,
    }


def test_on_this_machine_the_coordinator_listens_on_the_loopback_only() -> None:
    framework, job = spec("%framework=jax")
    here = {Replica("worker", 0): Address("127.0.0.1", 20001)}
    env = framework.environment(job, Replica("worker", 0), here)
    assert env["JAX_COORDINATOR_BIND_ADDRESS"] == "127.0.0.1:20001"


def test_a_worker_of_several_gpus_gets_all_of_them() -> None:
    for count, ids in ((1, None), (4, "0,1,2,3")):
        framework, job = spec(f"%framework=jax %worker=2;%gpu={count}")
        env = framework.environment(job, Replica("worker", 1), operators(job))
        assert env.get("JAX_LOCAL_DEVICE_IDS") == ids


def test_all_workers_decide() -> None:
    framework, job = spec("%framework=jax %worker=2")
    assert framework.decider(job) is None
    framework, job = spec("%framework=jax")
    assert job.replicas() == (Replica("worker", 0),)


def template(*env: str) -> dict[str, Any]:
    """A pod template as the backend makes it, with these variables."""
    variables = [{"name": name, "value": "x"} for name in env]
    first = {"image": "i", "env": variables}
    return {"metadata": {}, "spec": {"containers": [first, {"name": "other"}]}}


def test_a_pod_has_the_variables_that_the_operator_does_not_set() -> None:
    framework, job = spec("%framework=jax %worker=3")
    given = template("CIAO_JOB", "OMPI_COMM_WORLD_LOCAL_RANK")
    made = framework.manifest(job, {"worker": given})
    assert (made.kind, made.plural, made.container) == ("JAXJob", "jaxjobs", "jax")
    worker = made.spec["jaxReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (3, "Never")
    first, other = worker["template"]["spec"]["containers"]
    assert first["name"] == "jax"
    assert other == {"name": "other"}
    assert [one["name"] for one in first["env"][:2]] == ["CIAO_JOB", "OMPI_COMM_WORLD_LOCAL_RANK"]
    assert {one["name"]: one["value"] for one in first["env"][1:]} == {
        **OMPI,
        "OMPI_COMM_WORLD_LOCAL_RANK": "x",  # the user's own
        "OMPI_COMM_WORLD_RANK": "$(CIAO_INDEX)",
        "JAX_COORDINATOR_ADDRESS": "$(CIAO_JOB)-worker-0:6666",
    }
    assert given == template("CIAO_JOB", "OMPI_COMM_WORLD_LOCAL_RANK")


def test_one_of_several_workers_does_not_wait_for_them_after_a_failure() -> None:
    framework, job = spec("%framework=jax %worker=2 %args=--x")
    *python, _program, path, argument = framework.command(job, ARTIFACT)
    assert (python, path, argument) == (["/env/bin/python", "-u", "-c"], "/job/cell.py", "--x")
    framework, job = spec("%framework=jax %args=--x")
    assert framework.command(job, ARTIFACT) == ("/env/bin/python", "-u", "/job/cell.py", "--x")


FAKE = """
import atexit
from types import SimpleNamespace

global_state = SimpleNamespace(client=None)

@atexit.register
def shutdown():
    print("waits for the other workers")
"""
"""The module of JAX that connects workers; a worker is connected when there is a client."""
WAITS = "waits for the other workers\n"
CELL = """
import atexit, sys
from jax._src import distributed

class Thing:
    def __del__(self):
        print("destroyed")

thing = Thing()
atexit.register(print, "at exit")
file = open("open.txt", "w")
file.write("kept")

def train():
    distributed.global_state.client = CLIENT
    END

train()
"""


def run(
    folder: Path, client: str, end: str, *words: str, cell: str = CELL
) -> subprocess.CompletedProcess[str]:
    """Run a cell as a worker does, with a JAX that says when it would wait."""
    source = folder / "jax" / "_src"
    source.mkdir(parents=True)
    for file, text in {"../__init__.py": "", "__init__.py": "", "distributed.py": FAKE}.items():
        (source / file).write_text(text)
    (folder / "cell.py").write_text(cell.replace("CLIENT", client).replace("END", end))
    command = jax_rank.CALLER.command(sys.executable, words or (str(folder / "cell.py"),))
    env = {**os.environ, "PYTHONPATH": ""}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("raise ValueError('bad shard')", 1, "ValueError: bad shard\n"),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ],
)
def test_a_connected_worker_ends_at_its_failure(
    end: str, code: int, said: str, tmp_path: Path
) -> None:
    ended = run(tmp_path, "True", end)
    assert (ended.returncode, ended.stdout) == (code, "at exit\ndestroyed\n")
    assert ended.stderr.endswith(said)
    assert (tmp_path / "open.txt").read_text() == "kept"


def test_a_traceback_shows_the_program_alone(tmp_path: Path) -> None:
    trace = run(tmp_path, "True", "raise ValueError").stderr.splitlines()
    frames = [line for line in trace if line.startswith("  File ")]
    assert frames == [
        f'  File "{tmp_path}/cell.py", line 18, in <module>',
        f'  File "{tmp_path}/cell.py", line 16, in train',
    ]


@pytest.mark.parametrize(
    ("client", "end", "code"),
    [("True", "pass", 0), ("True", "sys.exit()", 0), ("None", "sys.exit(3)", 3)],
)
def test_any_other_worker_ends_as_in_python(
    client: str, end: str, code: int, tmp_path: Path
) -> None:
    ended = run(tmp_path, client, end)
    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout.startswith(f"at exit\n{WAITS}")


def test_a_module_ends_at_its_failure_too(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("raise SystemExit(3)")
    ended = run(tmp_path, "True", "import os; os.chdir('/'); import late", "-m", "cell")
    assert (ended.returncode, ended.stdout) == (3, "at exit\ndestroyed\n")


WITH_A_THREAD = """
import threading
from jax._src import distributed

started, lost = threading.Event(), threading.Event()

def load():
    started.set()

def feed(lost=lost):
    try:
        while True:
            load()
    except NameError:
        print("no load")
        lost.set()

class Shard:
    def __del__(self, lost=lost):  # the thread has the time to look for its function
        lost.wait()

threading.Thread(target=feed, daemon=True).start()
started.wait()
shard = Shard()
file = open("open.txt", "w")
file.write("kept")
distributed.global_state.client = CLIENT
END
"""


def test_a_daemon_thread_finds_the_programs_functions_until_the_end(tmp_path: Path) -> None:
    ended = run(tmp_path, "True", "raise ValueError('bad')", cell=WITH_A_THREAD)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.endswith("ValueError: bad\n")
    assert (tmp_path / "open.txt").read_text() == "kept"


WITH_A_FINALIZER = """
import os
from jax._src import distributed

LABEL = "destroyed"

def tell(text):
    print(text, os.sep)

class Thing:
    def __del__(self):
        tell(LABEL)
        closed.append(self.__class__)

closed = []
thing = Thing()
distributed.global_state.client = CLIENT
END
"""


def test_a_finalizer_finds_what_was_there_before_its_object(tmp_path: Path) -> None:
    ended = run(tmp_path, "True", "raise ValueError('bad')", cell=WITH_A_FINALIZER)
    assert (ended.returncode, ended.stdout) == (1, "destroyed /\n")
    assert ended.stderr.endswith("ValueError: bad\n")


@pytest.mark.parametrize(
    ("hook", "code", "said"),
    [
        ("sys.exit(4)", 4, []),
        ("sys.exit('told')", 1, ["told"]),
        ("raise OSError('no server')", 1, ["OSError: no server", "ValueError: bad shard"]),
    ],
)
def test_a_hook_of_the_program_that_fails_ends_it_as_in_python(
    hook: str, code: int, said: list[str], tmp_path: Path
) -> None:
    end = f"sys.excepthook = tell; raise ValueError('bad shard')\n\ndef tell(*_):\n    {hook}"
    ended = run(tmp_path, "True", end)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (code, "at exit\ndestroyed\n")
    assert [line for line in lines if line in said or "Error: " in line] == said
    assert "<string>" not in ended.stderr
    command = [sys.executable, str(tmp_path / "cell.py")]
    alone = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (ended.returncode, ended.stderr) == (alone.returncode, alone.stderr)
