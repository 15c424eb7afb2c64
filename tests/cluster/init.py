"""The node's first process: makes its file system, then starts, watches and signals its parts.

Run by node.py in new namespaces, first with this machine's Python outside the node's root, then
with the node's own inside. When it dies the kernel ends every process of the node and takes its
mounts and network away: nothing can be left behind.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SOCKET = "/control/socket"


def enter(plan: dict[str, Any]) -> None:
    """Make the node's root file system and go there; never returns.

    Args:
        plan: `lower` (folders, uppermost first), `upper`, `work`, `root`, `hostname`,
            `mounts` (lists of arguments for `mount`, below the root) and `settings` (content of
            files of /proc/sys that only the node shall see).
    """
    root = Path(plan["root"])
    overlay = f"lowerdir={':'.join(plan['lower'])},upperdir={plan['upper']},workdir={plan['work']}"
    _mount("-t", "overlay", "overlay", "-o", overlay, str(root))
    _mount("-t", "proc", "proc", f"{root}/proc")
    _mount("-t", "sysfs", "sysfs", f"{root}/sys")
    _mount("--rbind", "/sys/fs/cgroup", f"{root}/sys/fs/cgroup")
    _mount("--rbind", "/dev", f"{root}/dev")
    for *options, target in plan["mounts"]:
        (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        _mount(*options, f"{root}{target}")
    # A kubelet writes these, and they belong to the whole machine: it gets files in their place.
    shadow = root / "run" / "settings"
    for name, value in plan["settings"].items():
        copy = shadow / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(value)
        _mount("--bind", str(copy), f"{root}/proc/sys/{name}")
    (root / "host").mkdir(exist_ok=True)
    subprocess.run(["pivot_root", str(root), str(root / "host")], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/host"], check=True)
    _mount("--make-rshared", "/")
    socket.sethostname(plan["hostname"])
    os.execv("/usr/bin/python3", ["ciao-node", "/control/init.py"])


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


class Supervisor:
    """The parts that run on the node. One request at a time, each a line of JSON."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Any]] = {}

    def serve(self) -> None:
        """Answer requests until killed."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(reader, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        with contextlib.suppress(FileNotFoundError):
            Path(SOCKET).unlink()
        server = socket.socket(socket.AF_UNIX)
        server.bind(SOCKET)
        server.listen()
        server.settimeout(0.2)
        while True:
            self._reap()
            with contextlib.suppress(OSError):
                os.read(reader, 4096)
            try:
                connection, _ = server.accept()
            except (TimeoutError, InterruptedError):
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                line = connection.makefile().readline()
                connection.sendall(json.dumps(self._answer(json.loads(line))).encode() + b"\n")

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self._reap()
        try:
            if request["do"] == "start":
                self._start(request)
            elif request["do"] == "signal":
                os.kill(self._parts[request["name"]]["pid"], request["signal"])
            return {"parts": self._parts, "now": time.time()}
        except (OSError, KeyError, ValueError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def _start(self, request: dict[str, Any]) -> None:
        with Path(f"/var/log/parts/{request['name']}.log").open("ab") as log:
            process = subprocess.Popen(
                request["argv"],
                env=request["env"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._parts[request["name"]] = {"pid": process.pid, "since": time.time(), "code": None}
        process.returncode = 0  # its end is seen by _reap, with everybody else's

    def _reap(self) -> None:
        """Collect whatever ended: parts, and the orphans that every first process inherits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for part in self._parts.values():
                if part["pid"] == pid:
                    part["code"] = os.waitstatus_to_exitcode(status)
                    part["ended"] = time.time()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        enter(json.loads(Path(sys.argv[1]).read_text()))
    # What ctrl-C or a closing terminal sends to a whole group is not for the node.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    Supervisor().serve()
