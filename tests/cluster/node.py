"""The node: Linux namespaces with a small Debian in them, and what runs inside.

A network, mount, process, host name and IPC namespace of its own. The machine keeps one device
(the cable to the node), one folder, and the cgroups of the pods; they go with the node. Nothing
in it has a route to anywhere else.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.commands import run
from tests.cluster.errors import ClusterError
from tests.cluster.layout import REGISTRY_ADDRESS, Layout
from tests.cluster.sockets import connect

_NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts")
# Of the whole machine, not of a namespace; what the kubelet wants to find there.
_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class Node:
    """One node, running or not.

    Args:
        layout: its names and folders.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def start(self, lower: Sequence[Path], mounts: Sequence[Sequence[str]]) -> None:
        """Make the node and its network, with no part running yet.

        Args:
            lower: trees of its root file system, uppermost first.
            mounts: further mounts: arguments for `mount`, the last a path on the node.

        Raises:
            ClusterError: it could not be made; nothing of it is left then.
        """
        at = self.layout
        for folder in (at.control, at.logs, *(at.folder / "root" / n for n in _ROOT)):
            folder.mkdir(parents=True, exist_ok=True)
        plan = {
            "lower": [str(path) for path in lower],
            "upper": str(at.folder / "root/upper"),
            "work": str(at.folder / "root/work"),
            "root": str(at.folder / "root/merged"),
            "hostname": at.node,
            "mounts": [
                ["-t", "tmpfs", "tmpfs", "/run"],
                ["-t", "tmpfs", "tmpfs", "/tmp"],
                ["-t", "tmpfs", "-o", "mode=700", "tmpfs", "/var/lib/etcd"],
                ["--bind", str(at.control), "/control"],
                ["--bind", str(at.logs), "/var/log/parts"],
                *[list(words) for words in mounts],
            ],
            "settings": {n: v for n, v in _SETTINGS.items() if Path("/proc/sys", n).exists()},
        }
        (at.control / "plan.json").write_text(json.dumps(plan))
        shutil.copy(Path(__file__).with_name("init.py"), at.control)
        for hierarchy in _cgroups():
            _prepare(hierarchy / at.cgroup)
        with (at.logs / "node.log").open("ab") as log:
            holder = subprocess.Popen(
                ["unshare", *_NAMESPACES, "--fork", "--propagation", "private", "--",
                 sys.executable, "-I", at.control / "init.py", at.control / "plan.json"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd="/",
            )  # fmt: skip
        try:
            pid = _first_child(holder)
            (at.folder / "node.json").write_text(
                json.dumps({"pid": pid, "started": _started(pid), "boot": _boot()})
            )
            self._wire(pid)
            self._wait(holder)
        except BaseException:
            self.stop()
            raise

    def _wire(self, pid: int) -> None:
        """Lay the cable between machine and node, and set the node's routes."""
        at = self.layout
        run(["ip", "link", "add", at.device, "type", "veth",
             "peer", "name", "eth0", "netns", str(pid)])  # fmt: skip
        run(["ip", "address", "add", f"{at.host_address}/24", "dev", at.device])
        run(["ip", "link", "set", at.device, "up"])
        inside = ["nsenter", "--net", "--target", str(pid), "ip"]
        run([*inside, "link", "set", "lo", "up"])
        run([*inside, "address", "add", f"{at.address}/24", "dev", "eth0"])
        run([*inside, "link", "set", "eth0", "up"])
        if at.address != REGISTRY_ADDRESS:
            run([*inside, "address", "add", f"{REGISTRY_ADDRESS}/32", "dev", "lo"])
        # A service's address needs a route, any route, before kube-proxy's rules see a packet.
        run([*inside, "route", "add", at.services, "dev", "eth0"])

    def _wait(self, holder: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self._ask({"do": "status"})
                return
            if holder.poll() is not None:
                break
            time.sleep(0.02)
        said = (self.layout.logs / "node.log").read_text(errors="replace").strip()
        raise ClusterError(f"the node did not start:\n    {said[-1500:]}")

    @property
    def pid(self) -> int | None:
        """The host's number of its first process, or None if it does not run."""
        try:
            known = json.loads((self.layout.folder / "node.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        pid: int = known["pid"]
        # The number may have gone to another process since, or the machine been started anew.
        same = known["boot"] == _boot() and known["started"] == _started(pid)
        return pid if same else None

    def launch(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start a part; its output is appended to its log."""
        self._ask({"do": "start", "name": name, "argv": list(argv), "env": dict(env)})

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a part."""
        self._ask({"do": "signal", "name": name, "signal": int(number)})

    def parts(self) -> dict[str, dict[str, float]]:
        """Return what was started, by name: `pid` on the node, `code` once it has ended."""
        return self._ask({"do": "status"})["parts"] if self.pid else {}

    def run(self, argv: Sequence[str], **options: object) -> str:
        """Run a program on the node to its end and return what it printed."""
        return run(self.inside(argv), **options)  # type: ignore[arg-type]

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the command line, for this machine, that runs a program on the node."""
        if (pid := self.pid) is None:
            raise ClusterError("the cluster is not up", "raise it: make cluster")
        namespaces = [*_NAMESPACES, "--root", "--wd=/"]
        env = ["env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        return ["nsenter", "--target", str(pid), *namespaces, "--", *env, *argv]

    def host_pid(self, pid: int) -> int | None:
        """Return this machine's number of a process of the node."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                for line in status.read_text().splitlines():
                    if line.startswith("NSpid:") and line.split()[-1] == str(pid):
                        host = int(status.parent.name)
                        if self._same_namespace(host):
                            return host
        return None

    def _same_namespace(self, pid: int) -> bool:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path(f"/proc/{self.pid}/ns/pid").readlink()

    def stop(self) -> None:
        """End the node with all that runs on it, and remove what the machine kept of it."""
        at = self.layout
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)
            _wait_for_end(pid)
        subprocess.run(["ip", "link", "delete", at.device], capture_output=True, check=False)
        for hierarchy in _cgroups():
            _remove_cgroup(hierarchy / at.cgroup)
        if at.folder.exists():
            shutil.rmtree(at.folder)

    def _ask(self, request: Mapping[str, object]) -> dict[str, dict[str, dict[str, float]]]:
        with connect(self.layout.control / "socket", seconds=10) as client:
            client.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, dict[str, dict[str, float]]]
            answer = json.loads(client.makefile().readline())
        if "error" in answer:
            raise ClusterError(f"the node refused {request['do']}: {answer['error']}")
        return answer


_ROOT = ("upper", "work", "merged")


def _first_child(holder: subprocess.Popen[bytes]) -> int:
    """Return the process that unshare forked: the first of the new process namespace."""
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    for _ in range(500):
        with contextlib.suppress(OSError):
            if found := children.read_text().split():
                return int(found[0])
        if holder.poll() is not None:
            break
        time.sleep(0.01)
    raise ClusterError(
        "the kernel refused new namespaces", "root with CAP_SYS_ADMIN is needed, not a container"
    )


def _started(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _wait_for_end(pid: int) -> None:
    """Wait until the first process is gone: the kernel ends all others of the node before."""
    deadline = time.monotonic() + 30
    while _started(pid) is not None:
        if time.monotonic() > deadline:
            raise ClusterError(f"process {pid} does not end although it was killed")
        time.sleep(0.02)


def _cgroups() -> list[Path]:
    """Return the roots of the machine's cgroup hierarchies: one with version 2, many with 1."""
    root = Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists():
        return [root]
    return [path for path in root.iterdir() if (path / "cgroup.procs").exists()]


def _prepare(cgroup: Path) -> None:
    cgroup.mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty means that nobody may enter
        if (cgroup / name).exists() and not (cgroup / name).read_text().strip():
            (cgroup / name).write_text((cgroup.parent / name).read_text())
    # All pods together would count as one process of the machine: beside tests that run there,
    # one that imports TensorFlow took minutes. They count as eight. The names of both versions.
    for name, usual in (("cpu.shares", 1024), ("cpu.weight", 100)):
        if (cgroup / name).exists():
            (cgroup / name).write_text(str(8 * usual))


def _remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup and those below it. The processes are dead; the kernel may lag behind."""
    if not cgroup.exists():
        return
    for _ in range(100):
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        if not cgroup.exists():
            return
        time.sleep(0.05)
    raise ClusterError(f"{cgroup} cannot be removed", "a process in it still runs")
