"""Real kernel processes, and a client that sorts what a kernel says by request.

Nothing here imports ``ciao_kernel``: a test sees the kernel as Jupyter does.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.helpers.colors import uncolored

ROOT = Path(__file__).resolve().parents[2]
WAIT = 100.0
"""Seconds that any single thing may take; a test that waits so long has failed."""

JOB = "%framework=tensorflow\n%worker=2\n"
"""Header of a job that needs no TensorFlow."""
SILENT = JOB + "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
"""A job that says one line in each replica and then nothing for longer than any test."""
STAYS_UNTIL_THE_JOB_IS_OVER = """
import atexit, json, time

def stay():
    file = _job.folder.parents[1] / "status.json"
    while json.loads(file.read_text())["state"] == "Running":
        time.sleep(0.02)

_ = atexit.register(stay)
"""
"""A cell: at its end the kernel stays until the newest job is over."""

LINGER = "30"
"""`linger` of local jobs here: however slow this machine is, each replica gets to its end."""
IN_PODS = {"CIAO_LINGER": "1"}
"""What the built-in settings are again for jobs of a cluster: there a pod's end waits so long."""

_CHANNELS = ("shell", "control", "iopub", "stdin")
_MEASURED = "COVERAGE_PROCESS_CONFIG" in os.environ


class Place:
    """A user's folders, environment and kernelspecs, all below one temporary folder.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "notebooks"
        self.storage = folder / "storage"
        self.kernels = folder / "jupyter" / "kernels"
        for made in (self.work, self.kernels):
            made.mkdir(parents=True)
        self.env = {
            **{name: value for name, value in os.environ.items() if _neutral(name)},
            "CIAO_STORAGE": str(self.storage),
            "CIAO_LINGER": LINGER,
            "XDG_CONFIG_HOME": str(folder / "config"),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_PATH": str(folder / "jupyter"),
            "JUPYTER_CONFIG_DIR": str(folder / "jupyter-config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTER_PLATFORM_DIRS": "1",
        }
        shipped = json.loads((ROOT / "kernelspec" / "kernel.json").read_text())
        shipped["argv"][0] = sys.executable
        self.add_spec("ciao", shipped)
        self.add_spec("ciao-message", {**shipped, "interrupt_mode": "message"})
        self.add_spec("ciao-signal", {**shipped, "interrupt_mode": "signal"})
        plain = [sys.executable, "-m", "ipykernel_launcher", "--log-level=ERROR"]
        plain += ["-f", "{connection_file}"]
        self.add_spec("python3", {"argv": plain, "display_name": "Python", "language": "python"})

    def add_spec(self, name: str, spec: dict[str, Any]) -> None:
        (self.kernels / name).mkdir()
        (self.kernels / name / "kernel.json").write_text(json.dumps(spec))

    def job_folders(self) -> list[Path]:
        return sorted((self.storage / "jobs").glob("*"))

    def replicas(self) -> list[psutil.Process]:
        """Living processes of this place's jobs, their children's children too."""
        return _living(lambda one: self._has(one, "CIAO_REPLICA"))

    def supervisors(self) -> list[psutil.Process]:
        """The supervisors of this place's jobs, without their guards."""
        found = _living(self._supervises)
        parents = set()
        for one in found:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                parents.add(one.ppid())
        return [one for one in found if one.pid not in parents]

    def judged(self) -> dict[str, str]:
        """The states of the jobs by name, once each supervisor has looked whether to end its."""
        for one in self.supervisors():
            with contextlib.suppress(psutil.NoSuchProcess):  # that of a job that has just ended
                _woken(one)
        files = [folder / "status.json" for folder in self.job_folders()]
        return {file.parent.name: json.loads(file.read_text())["state"] for file in files}

    def all_processes(self) -> list[psutil.Process]:
        """Replicas, supervisors, and whatever else a job may have started."""
        return _living(lambda one: self._has(one, "CIAO_JOB_ID") or self._supervises(one))

    def wait_empty(self, within: float = WAIT) -> float:
        """Wait until no process of any job is left; return the seconds that it took."""
        started = time.monotonic()
        while left := self.all_processes():
            assert time.monotonic() - started < within, f"left running: {_described(left)}"
            time.sleep(0.02)
        return time.monotonic() - started

    def kill_all(self) -> None:
        """Leave nothing behind, whatever a test did."""
        for process in self.all_processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _has(self, process: str, variable: str) -> bool:
        """Whether a process of this place has a variable."""
        own, raw = f"CIAO_STORAGE={self.storage}".encode(), _read(f"{process}/environ")
        if own not in raw:
            return False
        variables = raw.split(b"\0")
        return own in variables and any(
            one.startswith(f"{variable}=".encode()) for one in variables
        )

    def _supervises(self, process: str) -> bool:
        command = _read(f"{process}/cmdline").split(b"\0")[:-1]
        inside = os.fsencode(self.storage / "jobs") + os.sep.encode()
        return len(command) > 1 and command[-1].startswith(inside) and b"supervisor" in command[-2]


def _living(wanted: Callable[[str], bool]) -> list[psutil.Process]:
    """Processes that are wanted by their folders in /proc.

    Not by psutil, which takes twice as long: tests ask all the time. What has ended has no
    variables and no command, also where nobody has reaped it yet.
    """
    with os.scandir("/proc") as entries:
        found = [one.name for one in entries if one.name.isdigit() and wanted(one.path)]
    living = []
    for pid in found:
        with contextlib.suppress(psutil.Error):
            living.append(psutil.Process(int(pid)))
    return living


def _woken(supervisor: psutil.Process) -> None:
    """Let a supervisor look twice; raises NoSuchProcess if it ends meanwhile."""
    for _ in range(2):
        slept = supervisor.num_ctx_switches().voluntary
        until = time.monotonic() + WAIT
        supervisor.send_signal(signal.SIGCHLD)  # as at the end of a replica
        while supervisor.is_running() and supervisor.num_ctx_switches().voluntary == slept:
            assert time.monotonic() < until, "a supervisor does nothing"
            time.sleep(0.01)


def _read(path: str) -> bytes:
    """A file of a process; empty where that is gone, or not ours."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _neutral(name: str) -> bool:
    """Whether a variable of the tests' own environment may reach a kernel."""
    return not name.startswith(("JUPYTER", "JPY_", "CIAO_", "IPYTHON", "PYTEST_", "XDG_", "PYDEVD"))


def _described(processes: list[psutil.Process]) -> str:
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid} {' '.join(process.cmdline())[-200:]}")
    return "\n".join(lines)


@dataclass
class Request:
    """One request, and all that a kernel has said about it so far."""

    id: str
    code: str = ""
    reply: dict[str, Any] | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    """What came on iopub, in order."""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    """``status:busy``, ``stream``, ``reply`` … in the order in which the client saw them."""

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """Contents of the messages of some types."""
        return [m["content"] for m in self.messages if m["msg_type"] in kinds]

    @property
    def text(self) -> str:
        return "".join(content["text"] for content in self.of("stream"))

    @property
    def states(self) -> list[str]:
        return [content["execution_state"] for content in self.of("status")]

    @property
    def status(self) -> str:
        assert self.reply is not None
        return self.reply["content"]["status"]

    @property
    def error(self) -> str:
        """Name of the error that the reply tells; empty for a success."""
        assert self.reply is not None
        return self.reply["content"].get("ename", "")

    @property
    def done(self) -> bool:
        return self.reply is not None and "idle" in self.states

    @property
    def tables(self) -> list[str]:
        """The job's table as plain text, first and all updates."""
        kinds = ("display_data", "update_display_data")
        return [content["data"]["text/plain"] for content in self.of(*kinds)]


class Client:
    """A client on a running kernel.

    Args:
        manager: The kernel's.
    """

    def __init__(self, manager: KernelManager) -> None:
        self.kc = manager.blocking_client()
        self.kc.start_channels()
        self._sockets = {name: getattr(self.kc, f"{name}_channel").socket for name in _CHANNELS}
        self._poller = zmq.Poller()
        for socket in self._sockets.values():
            self._poller.register(socket, zmq.POLLIN)
        self.requests: dict[str, Request] = {}
        self.strangers: list[dict[str, Any]] = []
        """Messages about requests of others, or about none."""
        self.on_request: Callable[[Request, dict[str, Any]], None] | None = None
        try:
            self.kc.wait_for_ready(timeout=WAIT)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.kc.stop_channels()
        # jupyter_client 8.6 leaves its threads and sockets to the garbage collector.
        self.kc.context.destroy(linger=0)

    def execute(self, code: str, **options: Any) -> Request:
        """Send a cell and return at once."""
        return self._sent(self.kc.execute(code, **options), code)

    def run(self, code: str, within: float = WAIT, **options: Any) -> Request:
        """Run a cell to its end: reply and idle."""
        return self.finish(self.execute(code, **options), within)

    def send(
        self,
        kind: str,
        content: dict[str, Any],
        *,
        control: bool = False,
        header: dict[str, Any] | None = None,
    ) -> Request:
        """Send any request."""
        message = self.kc.session.msg(kind, content)
        message["header"].update(header or {})
        (self.kc.control_channel if control else self.kc.shell_channel).send(message)
        return self._sent(message["header"]["msg_id"])

    def ask(self, kind: str, content: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Send any request and return the content of its reply."""
        request = self.send(kind, content, **options)
        self.wait(lambda: request.reply is not None, f"reply to {kind}")
        assert request.reply is not None
        return request.reply["content"]

    def finish(self, request: Request, within: float = WAIT) -> Request:
        self.wait(lambda: request.done, f"end of {request.code!r}", within)
        return request

    def wait_text(self, request: Request, text: str, within: float = WAIT) -> None:
        """Wait until a cell has shown a text."""
        self.wait(lambda: text in request.text, f"{text!r} in {request.code!r}", within)

    def wait_running(self, request: Request, place: Place, count: int = 2) -> None:
        """Wait until a cell's job has so many replicas, which have said ``ready`` so often."""
        self.wait(lambda: request.text.count("ready") >= count, "running replicas")
        # One that becomes another program has no variables for a moment.
        self.wait(lambda: len(place.replicas()) >= count, "processes of replicas")

    def wait(self, condition: Callable[[], bool], what: str, within: float = WAIT) -> None:
        """Take messages until a condition holds."""
        until = time.monotonic() + within
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"waited {within:g} s for {what}\n{self._story()}")
            self.take(0.02)

    def take(self, seconds: float) -> None:
        """Sort the messages that come within a time."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            ready = dict(self._poller.poll(max(0, math.ceil(left * 1000))))
            # Asked only where something lies: four questions cost more than all else here.
            for channel, socket in self._sockets.items():
                if socket in ready:
                    with contextlib.suppress(queue.Empty):
                        message = getattr(self.kc, f"get_{channel}_msg")(timeout=0)
                        self._sort(channel, message)
            if time.monotonic() >= until:
                return

    def _sort(self, channel: str, message: dict[str, Any]) -> None:
        request = self.requests.get(message["parent_header"].get("msg_id", ""))
        if request is None:
            # The kernel's own start, which may be told late.
            start = ("iopub_welcome", "status")
            own = not message["parent_header"] and message["msg_type"] in start
            if not own and message["parent_header"].get("msg_type") != "kernel_info_request":
                self.strangers.append(message)
        elif channel == "iopub":
            request.messages.append(message)
            kind = message["msg_type"]
            state = f":{message['content']['execution_state']}" if kind == "status" else ""
            request.events.append(kind + state)
        elif channel == "stdin":
            request.inputs.append(message)
        else:
            request.reply = message
            request.events.append("reply")

    def _sent(self, message_id: str, code: str = "") -> Request:
        self.requests[message_id] = Request(message_id, code)
        return self.requests[message_id]

    def _story(self) -> str:
        lines = []
        for request in list(self.requests.values())[-5:]:
            reply = request.reply and request.reply["content"].get("status")
            lines.append(f"{request.code[:60]!r}: reply {reply}, {request.events[-12:]}")
            lines.append(request.text[-500:])
        return "\n".join(lines)


def start_kernel(
    place: Place,
    name: str = "ciao",
    env: dict[str, str] | None = None,
    encryption: str = "",
) -> KernelManager:
    """Start a kernel process without a client; the parameters are those of Kernel."""
    specs = KernelSpecManager(kernel_dirs=[str(place.kernels)], ensure_native_kernel=False)
    manager = KernelManager(kernel_name=name, kernel_spec_manager=specs)
    if encryption:
        manager.transport_encryption = encryption
    manager.connection_file = str(place.folder / f"kernel-{time.monotonic_ns()}.json")
    manager.start_kernel(env={**place.env, **(env or {})}, cwd=str(place.work))
    return manager


class Kernel(Client):
    """A kernel process of its own, and a client on it.

    Args:
        place: Where its user works.
        name: Kernelspec: ``ciao``, ``ciao-signal``, ``ciao-message`` or ``python3``.
        env: Variables in addition to the place's.
        encryption: What the server asks for: "required", "auto"; "" leaves it to Jupyter.
    """

    def __init__(
        self,
        place: Place,
        name: str = "ciao",
        env: dict[str, str] | None = None,
        encryption: str = "",
    ) -> None:
        self.place = place
        self._clients: list[Client] = []
        self.manager = start_kernel(place, name, env, encryption)
        self.process = psutil.Process(self.manager.provisioner.pid)  # type: ignore[union-attr]
        try:
            super().__init__(self.manager)
        except BaseException:
            self.manager.shutdown_kernel(now=True)
            raise

    def client(self) -> Client:
        """Another client on the same kernel."""
        self._clients.append(Client(self.manager))
        return self._clients[-1]

    def interrupt(self) -> None:
        """The stop button."""
        self.manager.interrupt_kernel()

    def let_interrupts_arrive(self) -> None:
        """Wait for late interrupts: one by message has no order with the next cell."""
        for _ in range(3):
            self.ask("kernel_info_request", {}, control=True)
        self.take(0.5)

    def kill(self) -> None:
        """Kill -9."""
        os.kill(self.process.pid, signal.SIGKILL)

    def restart(self, *, now: bool = False) -> None:
        """The restart button; what was asked before is forgotten."""
        self.manager.restart_kernel(now=now)
        self.process = psutil.Process(self.manager.provisioner.pid)  # type: ignore[union-attr]
        self.close()
        super().__init__(self.manager)

    def be_patient(self) -> None:
        """Let a shutdown wait for the kernel's end; by default Jupyter kills it after 5 seconds."""
        self.manager.shutdown_wait_time = WAIT

    def shutdown(self, *, now: bool = False) -> None:
        """End the kernel, if it still lives; in order where coverage is measured, to be counted."""
        for client in (self, *self._clients):
            client.close()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=now and not _MEASURED)
        self.manager.cleanup_resources()


def lines_of(text: str, replica: str) -> list[str]:
    """The lines of one replica in the text of a cell, with its name and without colours."""
    plain = uncolored(text)
    return [line for line in plain.splitlines() if line.startswith(f"[{replica}]")]
