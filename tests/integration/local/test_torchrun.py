"""The end of a PyTorch job of several replicas, with the real torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ciao_kernel.errors import JobFailed
from ciao_kernel.frameworks import pytorch, torchrun
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


BARS = """
import logging, sys
from tqdm import tqdm

for number in tqdm(range(3), mininterval=0, ncols=60, bar_format="{n}/{total}"):
    pass
bar = tqdm(total=2, ncols=60, bar_format="{n}/{total}")
print("ends the line")
logging.warning("has a number")
bar.close()
bar = tqdm(total=1, ncols=60, leave=False, bar_format="{n}/{total}")
bar.close()
logging.warning("is a line of its own")
bar = tqdm(total=4, ncols=60, bar_format="{n}/{total}")
raise ValueError("while a bar is open")
"""


def test_bars_of_a_process_have_its_number(tmp_path: Path) -> None:
    """With the sitecustomize that each process of torchrun has."""
    pytest.importorskip("tqdm")
    (tmp_path / "sitecustomize.py").write_text(torchrun._LINES)
    (tmp_path / "program.py").write_text(BARS)
    own = {"CIAO_TORCHRUN": str(os.getpid()), "LOCAL_RANK": "1", "PYTHONPATH": str(tmp_path)}
    argv = [sys.executable, "-u", str(tmp_path / "program.py")]
    done = subprocess.run(
        argv, env={**os.environ, **own}, stdout=-1, stderr=-2, timeout=60, check=False
    )
    *lines, end = done.stdout.decode().split("\n")
    assert end == ""
    for line in lines:
        first, *states = line.split("\r")
        assert all(state.startswith("[1] ") for state in (first, *states) if state.strip()), line
    shown = [line.rsplit("\r", 1)[-1] for line in lines]
    assert shown[0].startswith("[1] 3/3")
    assert shown[2] == "[1] WARNING:root:has a number"
    assert "[1] WARNING:root:is a line of its own" in shown
    assert "[1] ValueError: while a bar is open" in shown


RESTORED = """
import gc, os, sys

print("first")
sys.stdout = open(os.devnull, "w")
print("hidden")
gc.collect()
print("a warning", file=sys.stderr)
sys.stdout = sys.__stdout__
print("again")
sys.stderr = open(os.devnull, "w")
gc.collect()
sys.stderr = sys.__stderr__
print("another", file=sys.stderr)
"""
REPLACED = """
import codecs, gc, sys

print("first")
sys.stdout = codecs.getwriter("utf-8")(sys.stdout.buffer)
print("a warning", file=sys.stderr)
gc.collect()
print("its own")
"""
FORKED = "from ciao_kernel.delivery.warm.zygote.marked_lines import mark_lines\nmark_lines()\n"


@pytest.mark.parametrize("one", [True, False], ids=["one stream", "two streams"])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "torchrun"])
@pytest.mark.parametrize(
    ("text", "out", "err"),
    [
        (RESTORED, ["[1] first", "[1] again"], ["[1] a warning", "[1] another"]),
        (REPLACED, ["[1] first", "its own"], ["[1] a warning"]),
    ],
    ids=["restored", "replaced"],
)
def test_a_program_may_replace_its_streams(
    text: str, out: list[str], err: list[str], warm: bool, one: bool, tmp_path: Path
) -> None:
    """What they share stays open, and the stream that the program restores still has the number."""
    (tmp_path / "sitecustomize.py").write_text("" if warm else torchrun._LINES)
    (tmp_path / "program.py").write_text(FORKED + text if warm else text)
    paths = os.pathsep.join((str(tmp_path), str(Path(torchrun.__file__).parents[2])))
    own = {"CIAO_TORCHRUN": str(os.getpid()), "LOCAL_RANK": "1", "PYTHONPATH": paths}
    argv = [sys.executable, "-u", str(tmp_path / "program.py")]
    done = subprocess.run(
        argv,
        env={**os.environ, **own},
        stdout=-1,
        stderr=-2 if one else -1,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    lines = sorted(done.stdout.decode().splitlines())
    assert lines == sorted(out + err if one else out)
    assert one or done.stderr.decode().splitlines() == err


FAILS = """
import os, sys

print("loss", 0.5, flush=True)
if os.environ["LOCAL_RANK"] == "1":
    print(BEFORE, end="", file=sys.stderr, flush=True)
    raise ValueError("of the second process")
"""


@pytest.mark.second("packages")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("before", ["", "\r 50%|█████     | 2/4 [00:00<00:00]"], ids=["", "bar"])
def test_the_error_of_a_process_is_shown_without_its_number(jobs: Place, before: str) -> None:
    program = FAILS.replace("BEFORE", repr(before))
    ended = jobs.run("%framework=pytorch\n%nprocPerNode=2\n" + program)
    assert isinstance(ended.error, JobFailed)
    assert "ValueError: of the second process" in ended.error.message
    assert ended.error.traceback[0] == "Traceback (most recent call last):"
    assert b"[1] ValueError: of the second process\n" in ended.log("master-0")


@pytest.mark.parametrize(("users", "rank"), [({}, "2"), ({"NODE_RANK": "5"}, "5")])
def test_a_replica_without_torchrun_finds_the_rank_of_its_node(
    users: dict[str, str], rank: str
) -> None:
    """In a PyTorchJob, whose operator sets only RANK."""
    program = [sys.executable, "-c", "import os; print(os.environ['NODE_RANK'])"]
    argv = [sys.executable, "-I", "-S", "-c", pytorch._OF_NODE, *program]
    done = subprocess.run(
        argv, env={**os.environ, "RANK": "2", **users}, stdout=-1, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{rank}\n"


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


FALLS = """
import os, signal, sys, time
if os.environ["LOCAL_RANK"] == "0":
    while not os.path.exists("ready"):
        time.sleep(0.01)
    FAIL
def end(*_):
    os.kill(os.getppid(), signal.SIGTERM)  # as the job does, of which another replica has failed
    time.sleep(0.5)
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
open("ready", "w").close()
while True:
    time.sleep(0.01)
"""


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fail", "code"),
    [
        ("os.kill(os.getpid(), 9)", -9),
        pytest.param("sys.exit(3)", -15, marks=pytest.mark.second("packages")),
    ],
)
def test_torchrun_ends_as_its_process_did_though_it_is_told_to_end(
    fail: str, code: int, tmp_path: Path
) -> None:
    """The other replicas of a job may fail while torchrun ends the others of a killed process."""
    (tmp_path / "program.py").write_text(FALLS.replace("FAIL", fail))
    argv = torchrun.command(sys.executable, (str(tmp_path / "program.py"),))
    own = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": "0"}
    own |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "0"}
    done = subprocess.run(
        argv, env={**os.environ, **own}, cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "SignalException" in done.stderr
