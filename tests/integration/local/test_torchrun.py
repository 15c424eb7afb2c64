"""The end of a PyTorch job of several replicas, with the real torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.frameworks import torchrun
from tests.helpers.jobs import Place
from tests.helpers.slow_torchrun import SEND_AND_RECEIVE, SLOW


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_master_ends_after_the_others_have_read_its_store(jobs: Place, tmp_path: Path) -> None:
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW)
    header = f"%framework=pytorch\n%worker=2\n%envvar=PYTHONPATH={tmp_path / 'slow'}\n"
    ended = jobs.run(header + SEND_AND_RECEIVE)
    assert ended.error is None
    logs = [ended.log(one) for one in ("master-0", "worker-0", "worker-1")]
    assert [log.count(b"says that it has ended") for log in logs] == [0, 1, 1]
    # torch may warn that it finds no name for an address, where no name server answers.
    assert all(word not in log for log in logs for word in (b"Error", b"Traceback", b"Connection"))


LINES = """
import os, subprocess, sys

print("hidden", os.environ["HIDDEN"])
child = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True)
print("child", repr(child.stdout))
for number in range(2000):
    print("rank", os.environ["RANK"], "says", number, "x" * 60)
    print("rank", os.environ["RANK"], "warns", number, "x" * 60, file=sys.stderr)
"""


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_lines_of_two_processes_of_one_replica_stay_whole(jobs: Place, tmp_path: Path) -> None:
    """And the environment's own sitecustomize still runs in each of them."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import os\nos.environ['HIDDEN'] = 'seen'\n")
    (tmp_path / "scratch").mkdir()
    header = "%framework=pytorch\n%nprocPerNode=2\n"
    header += f"%envvar=PYTHONPATH={tmp_path / 'own'} TMPDIR={tmp_path / 'scratch'}\n"
    ended = jobs.run(header + LINES)
    assert ended.error is None
    lines = ended.log("master-0").decode().splitlines()
    for rank in (0, 1):
        own = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert own[:2] == [f"[{rank}] hidden seen", f"[{rank}] child '1\\n'"]
        for word in ("says", "warns"):
            said = [line for line in own if f" {word} " in line]
            text = f"[{rank}] rank {rank} {word}"
            assert said == [f"{text} {number} {'x' * 60}" for number in range(2000)]
    assert not list((tmp_path / "scratch").glob("ciao-*"))


FAILS = """
import os, sys

print("loss", 0.5, flush=True)
if os.environ["LOCAL_RANK"] == "1":
    raise ValueError("of the second process")
"""


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_error_of_a_process_is_shown_without_its_number(jobs: Place) -> None:
    ended = jobs.run("%framework=pytorch\n%nprocPerNode=2\n" + FAILS)
    assert isinstance(ended.error, JobFailed)
    assert "ValueError: of the second process" in ended.error.message
    assert ended.error.traceback[0] == "Traceback (most recent call last):"
    assert b"[1] ValueError: of the second process\n" in ended.log("master-0")


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("os.kill(os.getpid(), 9)", -9),
        pytest.param("os.kill(os.getppid(), 15)", -15, marks=pytest.mark.second("packages")),
        ("sys.exit(143)", 143),
        pytest.param("sys.exit(3)", 1, marks=pytest.mark.second("packages")),
    ],
)
def test_torchrun_ends_as_its_process_did(ends: str, code: int, tmp_path: Path) -> None:
    """A lost replica is started again by these codes (%retries, ExitCode)."""
    program = tmp_path / "program.py"
    program.write_text(f"import os, sys, time\n{ends}\ntime.sleep(60)\n")
    argv = torchrun.command(sys.executable, (str(program),))
    own = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "0"}
    own |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "0"}
    done = subprocess.run(
        argv, env={**os.environ, **own}, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stderr
    assert "ChildFailedError" in done.stderr or "SignalException" in done.stderr
