"""The agent of warm replicas with real processes: runs, their ends, and what they may leave."""

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from ciao_kernel.delivery import replica_files, replica_program
from ciao_kernel.delivery.inspection import process_state, sampler, stack_reader
from ciao_kernel.delivery.output import keeper_program, results
from ciao_kernel.delivery.output.log_lines import LogReader
from ciao_kernel.delivery.transfers import messages
from ciao_kernel.delivery.warm import sending
from ciao_kernel.delivery.warm.agent import processes
from ciao_kernel.delivery.warm.marks import MarkReader

NONCE = "0123456789abcdef"


class Replica:
    """An agent below this test, and what its output says."""

    def __init__(self, folder: Path, *, alone: bool = False, **settings: object) -> None:
        for file in sending.agent().all():
            (folder / file.path).write_bytes(file.data or b"")
        (folder / ".ciao").mkdir()
        (folder / ".ciao" / results.KEEPER).write_text(keeper_program.text())
        (folder / ".ciao" / f"{replica_program.NAME}.py").write_text(replica_program.text())
        self.folder, self.number = folder, 0
        config = {
            "nonce": NONCE, "idle": 60, "lease": 60, "runLease": 60, "grace": 1, "keep": False,
            "oom": True, "root": str(folder / "runs"), "preload": ["json"], "environment": {},
            "host": "127.0.0.1", **settings,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(folder / sending.AGENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CIAO_WARM": json.dumps(config)},
            bufsize=0,
            start_new_session=alone,
        )
        self._reader, self._rest = MarkReader(NONCE), b""
        self.parts: list[bytes | dict] = []
        self.wait_for("ready")

    def send(self, **command: object) -> None:
        self.process.stdin.write(json.dumps(command).encode() + b"\n")

    def start(self, program: str, beside: dict[str, str] | None = None, **more: object) -> int:
        self.number += 1
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            for name, text in {"cell.py": program, **(beside or {})}.items():
                info = tarfile.TarInfo(name)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        command = {
            "op": "run", "id": self.number, "tar": base64.b64encode(data.getvalue()).decode(),
            "program": "cell.py", "arguments": [], "processes": [{}], "environment": {},
            "learn": False, **more,
        }  # fmt: skip
        self.command = command
        self.send(**command)
        return self.number

    def run(self, program: str, **more: object) -> tuple[dict, str]:
        """Run a program; return its end and its lines."""
        number = self.start(program, **more)
        begin = self.wait_for("begin", number)
        end = self.wait_for("end", number)
        first, last = self.parts.index(begin), self.parts.index(end)
        text = b"".join(one for one in self.parts[first:last] if isinstance(one, bytes))
        return end, text.decode()

    def wait_for(self, event: str, number: int | None = None) -> dict:
        while True:
            for part in self.parts:
                found = isinstance(part, dict) and part["ev"] == event
                if found and (number is None or part["id"] == number):
                    return part
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, (event, self.parts)
            cut = (self._rest + data).rfind(b"\n") + 1
            whole, self._rest = (self._rest + data)[:cut], (self._rest + data)[cut:]
            self.parts += self._reader.read(whole)

    def wait_for_line(self, text: bytes) -> None:
        while not any(text in part for part in self.parts if isinstance(part, bytes)):
            data = self._rest + os.read(self.process.stdout.fileno(), 1 << 16)
            cut = data.rfind(b"\n") + 1
            self._rest = data[cut:]
            self.parts += self._reader.read(data[:cut])

    def below(self) -> set[int]:
        """Return the processes below the agent."""
        found, todo = set(), [self.process.pid]
        while todo:
            children = Path(f"/proc/{todo[0]}/task/{todo.pop(0)}/children").read_text().split()
            todo += map(int, children)
            found |= set(map(int, children))
        return found


@pytest.fixture
def replica(tmp_path: Path):
    agent = Replica(tmp_path)
    yield agent
    agent.process.terminate()
    agent.process.wait()


def test_a_run_is_what_a_fresh_interpreter_would_be(replica: Replica) -> None:
    program = """
import os, pickle, random, sys
if "seen" in globals() or hasattr(sys, "seen"):
    print("something survived")
seen = sys.seen = True
class Thing: pass
print(__name__, sys.argv[1:], type(pickle.loads(pickle.dumps(Thing()))).__name__)
print(os.path.basename(os.getcwd()), os.listdir("."), repr(sys.stdin.read()))
open("left.txt", "w").write("x")
print("random", random.random())
print("no line feed", end="")
"""
    ends = [replica.run(program, arguments=["--epochs", "3"]) for _ in range(2)]
    for number, (end, text) in enumerate(ends, 1):
        lines = text.splitlines()
        assert end["code"] == 0
        assert lines[0] == "__main__ ['--epochs', '3'] Thing"
        assert lines[1] == f"run-{number} ['cell.py'] ''"
        assert lines[3:] == ["no line feed"]
    assert ends[0][1].splitlines()[2] != ends[1][1].splitlines()[2], "the same random numbers"


@pytest.mark.second("faults")
@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise ValueError('no')", 1),
        ("def f(:", 1),
        ("import sys; sys.exit(3)", 3),
        ("import os; os._exit(7)", 7),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os; os.killpg(0, 9)", -signal.SIGKILL),
        ("import os; os.close(1); os.close(2)", 0),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL); print('goes on')", 0),
    ],
)
def test_the_next_run_works_after_every_end(replica: Replica, program: str, code: int) -> None:
    end, _ = replica.run(program)
    assert end["code"] == code, replica.parts
    assert replica.run("print('well')") == ({**replica.parts[-1]}, "well\n")


def test_a_program_ends_as_in_python(replica: Replica) -> None:
    program = """
import atexit, threading, time
class Thing:
    def __del__(self): print("destroyed")
thing = Thing()
file = open("open.txt", "w")
file.write("kept")
atexit.register(print, "at exit")
ends = threading.Event()
def late():
    ends.wait()
    time.sleep(0.1)
    print("thread")
threading.Thread(target=late).start()
print("end of the program")
ends.set()
"""
    end, text = replica.run(program)
    assert end["code"] == 0
    assert text.splitlines() == ["end of the program", "thread", "at exit", "destroyed"]
    assert (replica.folder / "runs/run-1/open.txt").read_text() == "kept"
    assert replica.run("raise SystemExit('why')") == ({**replica.parts[-1], "code": 1}, "why\n")


JAX = """
import atexit
from types import SimpleNamespace

global_state = SimpleNamespace(client=CLIENT)

@atexit.register
def shutdown():
    print("waits for its work and the other workers")
"""


@pytest.mark.parametrize(
    ("client", "code", "waits"), [(True, 0, True), (True, 3, False), (None, 3, True)]
)
def test_only_a_failed_program_with_other_workers_waits_for_nothing(
    client: object, code: int, waits: bool, replica: Replica
) -> None:
    jax = JAX.replace("CLIENT", str(client))
    beside = {"jax/__init__.py": "", "jax/_src/__init__.py": "", "jax/_src/distributed.py": jax}
    program = f"import jax._src.distributed\nraise SystemExit({code})"
    end, text = replica.run(program, beside=beside)
    assert end["code"] == code
    assert text == ("waits for its work and the other workers\n" if waits else "")


def test_a_traceback_shows_the_program_alone(replica: Replica) -> None:
    _, text = replica.run("def f():\n    raise ValueError('no')\nf()\n")
    assert "zygote" not in text
    assert 'run-1/cell.py", line 3, in <module>\n    f()' in text
    assert text.endswith("ValueError: no\n")


def test_a_hook_of_the_program_that_fails_ends_it_as_in_python(replica: Replica) -> None:
    program = "import sys\nsys.excepthook = lambda *_: {}\nraise ValueError('no')"
    end, text = replica.run(program.format("sys.exit('told')"))
    assert (end["code"], text) == (1, "told\n")
    end, text = replica.run(program.format("[][0]"))
    assert (end["code"], "zygote" in text) == (1, False)
    assert "IndexError: " in text
    assert text.endswith("ValueError: no\n")


def test_nothing_of_a_run_is_left_behind_its_end(replica: Replica) -> None:
    program = """
import os, subprocess, sys
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            os.write(1, b"still here\\n")
    os._exit(0)
os.waitpid(child, 0)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
"""
    replica.run("pass")
    before = replica.below()
    end, _ = replica.run(program)
    assert end["left"] >= 2
    assert replica.run("print('alone')")[1] == "alone\n"
    assert replica.below() == before


def test_children_are_found_as_in_the_list_of_all_processes(replica: Replica) -> None:
    program = "import subprocess as s; s.Popen(['sleep', '1000']); s.run(['sleep', '1000'])"
    replica.start(f"print('up', flush=True); {program}")
    replica.wait_for_line(b"up")
    while len(replica.below()) < 4:  # a zygote, its fork and two programs
        time.sleep(0.01)
    for pid in (replica.process.pid, *replica.below()):
        assert sorted(processes._children(pid)) == sorted(processes._all_children()[pid])


def test_a_stop_ends_a_program_that_ignores_sigterm(replica: Replica) -> None:
    number = replica.start(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\ntime.sleep(1000)"
    )
    replica.wait_for_line(b"deaf")
    replica.send(op="stop", id=number, grace=0.2)
    end = replica.wait_for("end", number)
    assert (end["code"], end["why"]) == (-signal.SIGKILL, "stopped")
    assert replica.run("print('well')")[1] == "well\n"


@pytest.mark.second("faults")
def test_a_deadline_is_kept_without_the_kernel(replica: Replica) -> None:
    end, _ = replica.run("import time; time.sleep(1000)", deadline=0.3)
    assert (end["code"], end["why"]) == (-signal.SIGTERM, "deadline")


@pytest.mark.second("faults")
def test_a_command_is_run_once_and_a_cut_one_is_dropped(replica: Replica) -> None:
    replica.process.stdin.write(b'{"op":"run","id":1,"ta')
    replica.process.stdin.write(b"\n")
    number = replica.start("import time; print('once'); time.sleep(0.3)")
    replica.send(**replica.command)
    replica.wait_for("end", number)
    replica.send(**replica.command)
    _, text = replica.run("print('next')")
    assert text == "next\n"
    assert b"".join(part for part in replica.parts if isinstance(part, bytes)).count(b"once") == 1


@pytest.mark.second("faults")
def test_a_second_run_is_refused_while_one_is_active(replica: Replica) -> None:
    replica.start("import time; print('first', flush=True); time.sleep(1000)")
    replica.wait_for_line(b"first")
    number = replica.start("print('second')")
    assert replica.wait_for("refused", number)["why"] == "run 1 is active"


@pytest.mark.second("faults")
def test_several_processes_write_whole_lines_and_end_together(replica: Replica) -> None:
    program = """
import os, time
for step in range(100):
    print("step", step, "x" * 50, flush=True)
open("done-" + os.environ["LOCAL_RANK"], "w").close()
while os.environ["LOCAL_RANK"] == "1":
    if all(os.path.exists("done-" + rank) for rank in "02"):
        raise SystemExit(5)
    time.sleep(0.01)
time.sleep(1000)
"""
    end, text = replica.run(program, processes=[{"LOCAL_RANK": str(n)} for n in range(3)])
    assert end["code"] == 5
    wanted = [f"[{rank}] step {step} {'x' * 50}" for rank in range(3) for step in range(100)]
    assert sorted(text.splitlines()) == sorted(wanted)


@pytest.mark.parametrize("way", ["stacks", "samples"])
def test_the_ranks_of_several_processes_are_seen_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("CIAO_JOB", tmp_path.name)
    replica = Replica(tmp_path)
    program = (
        "import os, time\nif not os.fork(): time.sleep(1000)\n"
        "print('rank', os.environ['LOCAL_RANK'], os.getpid(), flush=True)\ntime.sleep(1000)"
    )
    ranks = [{"LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": "2"} for n in range(2)]
    replica.start(program, processes=ranks)
    for n in range(2):
        replica.wait_for_line(f"rank {n} ".encode())
    text = b"".join(one for one in replica.parts if isinstance(one, bytes)).decode()
    told = {pid: rank for _, _, rank, pid in map(str.split, text.splitlines())}
    mark = f"CIAO_JOB={tmp_path.name}"
    if way == "stacks":
        found = stack_reader.look(mark, str(tmp_path), 0.01)
    else:
        found = sampler.sample(mark, str(tmp_path), 0.01, lambda _: False)
    replica.process.terminate()
    replica.process.wait()
    assert {str(one["pid"]): one["rank"] for one in found if str(one["pid"]) in told} == told
    below = {one["parent"]: one["rank"] for one in found if str(one["parent"]) in told}
    assert {str(pid): rank for pid, rank in below.items()} == told, "children have it too"
    others = [one["rank"] for one in found if not {str(one["pid"]), str(one["parent"])} & {*told}]
    assert not any(others), "those of the agent have none"


@pytest.mark.second("faults")
def test_a_run_ends_though_a_process_is_killed_before_it_says_that_it_is_there(
    replica: Replica,
) -> None:
    """One fails at once, and the agent ends its peers: one of them may be a fork of this moment."""
    for _ in range(40):
        end, _ = replica.run("import os\nos._exit(3)", processes=[{}] * 8)
        assert end["code"] == 3


def test_a_file_of_the_program_hides_an_installed_module(tmp_path: Path) -> None:
    """As in a fresh interpreter, though the zygote has imported the installed one."""
    agent = Replica(tmp_path, preload=["iniconfig"])
    uses = "import iniconfig\nprint(iniconfig.__file__)"
    _, text = agent.run("import sys\nprint('iniconfig' in sys.modules)")
    assert text == "True\n"
    end, text = agent.run(uses, beside={"iniconfig.py": "x = 1\n"})
    assert end["code"] == 0
    assert text.endswith("/iniconfig.py\n")
    assert "-packages" not in text
    _, text = agent.run(uses)
    assert "-packages" in text
    agent.process.terminate()
    agent.process.wait()


def test_an_agent_whose_files_are_fetched_is_not_idle(tmp_path: Path) -> None:
    agent = Replica(tmp_path)
    agent.run("pass", idle=6.0)
    until = time.monotonic() + 8
    while time.monotonic() < until:
        agent.send(op="ping", busy=True)
        time.sleep(0.2)
    assert agent.process.poll() is None
    end, text = agent.run("print('still here')")
    assert (end["code"], text) == (0, "still here\n")
    agent.process.terminate()
    agent.process.wait()


def test_what_a_program_imports_is_there_before_the_next_run(replica: Replica) -> None:
    program = "import sys; print('decimal' in sys.modules); import decimal"
    assert replica.run(program, learn=True)[1] == "False\n"
    for _ in range(200):  # the heir imports meanwhile
        if replica.run(program, learn=True)[1] == "True\n":
            return
    raise AssertionError("never learned")


@pytest.mark.second("faults")
def test_generators_that_an_import_has_made_are_renewed_in_each_run(tmp_path: Path) -> None:
    replica = Replica(tmp_path, preload=["numpy"])
    program = "import sys; print(sys.modules['numpy'].random.random(), end='')"
    numbers = {replica.run(program)[1] for _ in range(3)}
    replica.process.terminate()
    replica.process.wait()
    assert len(numbers) == 3
    assert all(0 <= float(one) < 1 for one in numbers)


def test_a_zygote_has_another_name_than_its_forks(replica: Replica) -> None:
    _, text = replica.run("import os; print(open('/proc/self/comm').read(), os.getppid())")
    name, zygote = text.split()
    assert process_state.command(int(zygote)) == "ciao-zygote"
    assert name == Path(f"/proc/{replica.process.pid}/comm").read_text().strip()


@pytest.mark.second("faults")
def test_a_zygote_with_threads_is_not_forked(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    )
    replica = Replica(tmp_path, preload=["threaded"])
    program = "import sys; print('threaded' in sys.modules)"
    end, text = replica.run(program)
    assert (end["cold"], text) == (True, "False\n")
    assert replica.run(program)[0]["code"] == 0


@pytest.mark.second("faults")
@pytest.mark.parametrize(("settings", "why"), [({"idle": 0.3}, "idle"), ({"lease": 0.3}, "kernel")])
def test_an_agent_that_nobody_needs_ends(tmp_path: Path, settings: dict, why: str) -> None:
    replica = Replica(tmp_path, **settings)
    assert why in replica.wait_for("bye")["why"]
    assert replica.process.wait() == 0


@pytest.mark.second("faults")
def test_a_replica_whose_kernel_is_gone_ends_as_its_program(tmp_path: Path) -> None:
    replica = Replica(tmp_path, runLease=0.2)
    replica.start("import time; time.sleep(0.5); raise SystemExit(3)")
    assert replica.process.wait() == 3


@pytest.mark.second("faults")
def test_a_terminated_agent_leaves_no_process(replica: Replica) -> None:
    replica.start("import time; print('up', flush=True); time.sleep(1000)")
    replica.wait_for_line(b"up")
    below = replica.below()
    replica.process.terminate()
    assert replica.process.wait() == 128 + signal.SIGTERM
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def stop(replica: Replica, later: int) -> dict:
    """Stop agent and zygote as a job does, one of them later; return the end of the run."""
    (zygote,) = replica.below()
    os.kill(later, signal.SIGSTOP)
    os.killpg(replica.process.pid, signal.SIGTERM)
    while later != zygote and psutil.Process(zygote).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    os.kill(later, signal.SIGCONT)
    end = replica.wait_for("end", replica.number)
    assert replica.process.wait() == 128 + signal.SIGTERM
    return end


def test_a_stop_before_the_imports_are_done_starts_no_program(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("import time\ntime.sleep(1000)")
    replica = Replica(tmp_path, alone=True, preload=["early"])
    replica.start("print('never')")
    replica.wait_for("begin", 1)
    assert stop(replica, replica.process.pid)["why"] == "terminated"
    assert b"never" not in b"".join(part for part in replica.parts if isinstance(part, bytes))


@pytest.mark.second("faults")
def test_a_stop_before_the_fork_is_one(tmp_path: Path) -> None:
    replica = Replica(tmp_path, alone=True)
    replica.run("pass")
    (zygote,) = replica.below()
    os.kill(zygote, signal.SIGSTOP)
    replica.start("print('never')")
    replica.wait_for("begin", 2)
    assert stop(replica, zygote)["why"] == "terminated"


@pytest.mark.second("faults")
def test_a_changed_variable_is_there_before_the_imports(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("import os\nfound = os.environ.get('LEVEL')")
    replica = Replica(tmp_path, preload=["early"])
    program = "import sys; print(sys.modules['early'].found)"
    assert replica.run(program)[1] == "None\n"
    assert replica.run(program, environment={"LEVEL": "3"})[1] == "3\n"
    assert replica.run(program)[1] == "None\n"


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("own", "given", "found"),
    [(None, {}, "1"), ("4", {}, "4"), ("4", {"OMP_NUM_THREADS": "2"}, "2")],
)
def test_a_default_of_the_run_does_not_replace_the_replicas_own_variable(
    own: str | None,
    given: dict[str, str],
    found: str,
    cold: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if own is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", own)
    agent = Replica(tmp_path)
    program = "import os; print(os.environ['OMP_NUM_THREADS'])"
    defaults = {"OMP_NUM_THREADS": "1"}
    assert agent.run(program, environment=given, defaults=defaults, cold=cold)[1] == f"{found}\n"
    agent.process.terminate()
    agent.process.wait()


WRITES = (
    "import os\nos.mkdir('model')\nopen('model/net', 'w').write('run {0}' * 9000)\nprint('wrote')"
)


def files(stream: bytes) -> dict[str, bytes]:
    """The files in what a replica has given."""
    found: dict[str, bytes] = {}
    path = ""
    for kind, body in messages(bytearray(stream)):
        if kind == replica_files.FILE:
            path = json.loads(body)["path"]
            found[path] = b""
        elif kind == replica_files.DATA:
            found[path] += body
    return found


def test_the_files_of_each_run_are_given_by_the_log(replica: Replica) -> None:
    words = {"way": "log", "words": ["model/"], "limit": 1 << 20}
    for number in (1, 2):
        end, text = replica.run(WRITES.format(number), files=words)
        assert end["gives"]
        assert text == "wrote\n"
        given = replica.wait_for("given", number)
        assert given["fault"] == ""
        reader = LogReader()
        for part in replica.parts:
            if isinstance(part, dict) and (part["ev"], part.get("id")) == ("files", number):
                reader.take(part["line"].encode())
        assert reader.whole
        assert files(reader.data) == {"model/net": f"run {number}".encode() * 9000}
    assert "gives" not in replica.run("print('no files')")[0]


def test_a_run_that_removes_its_folder_gives_none_and_the_replica_stays(replica: Replica) -> None:
    words = {"way": "log", "words": ["model/"], "limit": 1 << 20}
    replica.run("import os, shutil\nshutil.rmtree(os.getcwd())", files=words)
    assert replica.wait_for("given", 1)["fault"] == "No such file or directory"
    assert replica.run("print('next')")[1] == "next\n"


def test_a_run_that_was_stopped_gives_no_files(replica: Replica) -> None:
    words = {"way": "log", "words": ["model/"], "limit": 1 << 20}
    program = WRITES.format(1) + "\nimport time\nprint('up')\ntime.sleep(1000)"
    number = replica.start(program, files=words)
    replica.wait_for_line(b"up")
    replica.send(op="stop", id=number, grace=1)
    assert "gives" not in replica.wait_for("end", number)


def test_files_of_a_run_go_to_a_bucket_and_a_refusal_is_said(replica: Replica) -> None:
    objects: dict[str, bytes] = {}

    class Bucket(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200 if self.path == "/mine" else 403)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        words = {"way": "s3", "words": ["model/"], "limit": 1 << 20}
        for number, name in ((1, "mine"), (2, "other")):
            address = f"http://127.0.0.1:{server.server_port}/{name}"
            replica.run(WRITES.format(number), files={**words, "address": address, "pause": 0})
            given = replica.wait_for("given", number)
            assert given["fault"] == (
                "" if number == 1 else "the bucket refused the files: HTTP 403"
            )
        assert files(objects["/mine"]) == {"model/net": b"run 1" * 9000}
        assert not list((replica.folder / "runs" / ".ciao-warm").glob("stream-*"))
    finally:
        server.shutdown()
        server.server_close()


def test_files_that_are_being_given_are_dropped_only_if_the_user_stops_the_run(
    replica: Replica,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bucket:
        address = f"http://127.0.0.1:{bucket.getsockname()[1]}/x"
        words = {"way": "s3", "words": ["model/"], "limit": 1 << 20, "address": address}
        replica.run(WRITES.format(1), files=words)
        connection, _ = bucket.accept()
        with connection:
            replica.send(op="stop", id=1, grace=1)  # as when another replica has ended
            data = b""
            while data.count(b"run 1") < 9000:
                data += connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert replica.wait_for("given", 1)["fault"] == ""
        replica.run(WRITES.format(2), files=words)
        connection, _ = bucket.accept()
        with connection:  # never answers
            replica.send(op="stop", id=2, grace=1, drop=True)
            assert "exit code -9" in replica.wait_for("given", 2)["fault"]
        assert replica.run("print('next')")[1] == "next\n"
