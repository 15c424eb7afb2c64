"""The agent of a warm replica: reads commands, and runs one program after the other.

It runs in the replica instead of the program, with the replica's Python (3.9 or newer) and the
standard library only. It starts a zygote (:mod:`.zygote`), which imports the framework once and is
forked for each run. The processes of a run write directly to the output of the replica; the agent
adds marker lines, by which readers tell the runs apart (:mod:`.marks`).

Commands are lines of JSON: ``run``, ``stop``, ``ping`` and ``bye``. Nobody has to be alive for the
agent to end: it ends by itself if no run begins for a time, or if the kernel is silent.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import functools
import io
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from typing import Any

_PRIVATE = ".ciao-warm"
"""Folder of the agent's own files, below the root of its runs."""
_TICK = 0.25
_PATIENCE = 5.0
"""Seconds in which killed processes of a run must be gone."""
_GRACE_OF_PEERS = 2.0
"""Seconds from SIGTERM to SIGKILL for the other processes of a replica in which one failed."""
_SUBREAPER = 36
_GIVER = os.path.join(".ciao", "ciao_output_keeper.py")
"""Program that gives the files of a run, beside this one."""
_PAUSE = 2.0
"""Seconds before its second try to write to a bucket."""
_LONGEST_FAULT = 200
_MOST_VALUES = 4096
"""Bytes of values of ``%output``: those of a termination message, which other jobs have."""


class Run:
    """One run of a program in this replica."""

    def __init__(self, ask: dict[str, Any]) -> None:
        self.id: int = ask["id"]
        self.ask = ask
        self.pids: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.wanted = len(ask["processes"])
        self.pending = True
        self.begun = time.monotonic()
        self.kill_at: float | None = None
        self.why = ""
        self.giver: int | None = None
        self.memory_kills = _memory_kills()
        deadline = ask.get("deadline")
        self.deadline_at = self.begun + deadline if deadline else None


class Agent:
    """Runs programs until nobody needs it any more.

    Args:
        settings: From the variable ``CIAO_WARM``.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._mark = f"\x1eciao:{settings['nonce']} "
        self._idle: float = settings["idle"]
        self._lease: float = settings["lease"]
        self._run_lease: float = settings["runLease"]
        self._grace: float = settings["grace"]
        self._keeps: bool = settings["keep"]
        self._oom: bool = settings["oom"]
        self._root = settings["root"] or os.getcwd()
        self._host: str = settings["host"]
        self._own = os.path.join(self._root, _PRIVATE)
        self._preload: list[str] = settings["preload"]
        self._environment: dict[str, str] = settings["environment"]
        self._learned = os.path.join(self._own, f"learned-{os.getpid()}")
        self._learns = True
        self._cold = False
        self._run: Run | None = None
        self._last = 0
        self._unheard: int | None = None
        self._text = bytearray()
        self._zygote: Zygote | None = None
        self._heir: Zygote | None = None
        self._source = 0
        self._code: int | None = None
        self._terminated = False
        self._listener = _free_port()
        self._heard = self._quiet_since = time.monotonic()
        self._picker = selectors.DefaultSelector()

    # ------------------------------------------------------------------------------- the loop

    def loop(self) -> int:
        """Serve commands; return the exit code of the replica."""
        os.makedirs(self._own, exist_ok=True)
        self._source = self._input()
        wake, writer = socket.socketpair()
        wake.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._terminate)
        # Children of processes that have ended become children of the agent: none gets lost.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._picker.register(self._source, selectors.EVENT_READ, self._read_commands)
        self._picker.register(wake, selectors.EVENT_READ, lambda: _drain(wake))
        self._ready()
        self._warm_up(self._environment)
        while self._code is None:
            for key, _ in self._picker.select(timeout=_TICK):
                key.data()
            self._reap()
            self._keep_time(time.monotonic())
        self._cool()
        self._kill_rest()
        return self._code

    def _terminate(self, *_: object) -> None:
        self._terminated = True

    def _keep_time(self, now: float) -> None:
        """Do what is due at a time: kills, the deadline of a run, the end of the agent."""
        run = self._run
        if self._terminated:
            if run is None:
                self._code = 128 + signal.SIGTERM
                return
            if run.kill_at is None:
                self._stop(run, self._grace, "terminated")
        if run is not None:
            if run.deadline_at and now >= run.deadline_at and run.kill_at is None:
                self._stop(run, self._grace, "deadline")
            elif run.kill_at is not None and now >= run.kill_at:
                self._signal(signal.SIGKILL)
                if run.pending:
                    self._finish(run)
        elif (why := self._needless(now)) and not self._picker.select(timeout=0):
            # Who was asleep first reads what has come meanwhile.
            self._end(why, self._unheard or 0)

    def _needless(self, now: float) -> str:
        """Return why nobody needs this replica any more; "" if somebody may."""
        if now - self._quiet_since > self._idle:
            return "idle"
        return "the kernel is gone" if now - self._heard > self._lease else ""

    def _end(self, why: str, code: int) -> None:
        self._emit(ev="bye", why=why, code=code)
        self._code = code if code >= 0 else 128 - code

    # ------------------------------------------------------------------------------- commands

    def _input(self) -> int:
        """Return the descriptor of commands: standard input, or on this machine a named pipe."""
        name = os.environ.get("CIAO_REPLICA", "")
        path = os.path.join(self._own, f"{name}.in")
        if not self._keeps or not name:
            return 0
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # for writing too: it never ends

    def _read_commands(self) -> None:
        data = os.read(self._source, 1 << 20)
        if not data:
            self._picker.unregister(self._source)  # only the lease ends the agent now
            return
        start = len(self._text)
        self._text += data
        while (end := self._text.find(b"\n", start)) >= 0:
            line = bytes(self._text[:end])
            del self._text[: end + 1]
            start = 0
            if line.strip():
                self._command(line)

    def _command(self, line: bytes) -> None:
        try:
            ask = json.loads(line)
            name = ask["op"]
        except (ValueError, KeyError, TypeError):
            return  # the rest of a command that was cut; it is sent again
        self._heard = time.monotonic()
        self._unheard = None
        self._idle = ask.get("idle", self._idle)
        if name == "run":
            self._start(ask)
        elif name == "stop" and self._run is not None and ask["id"] == self._run.id:
            if self._run.giver is not None:
                if ask.get("drop"):
                    _kill(self._run.giver, signal.SIGKILL)
            elif self._run.kill_at is None:
                self._stop(self._run, ask.get("grace", self._grace), "stopped")
        elif name == "bye" and self._run is None:
            self._end("asked", 0)

    # ------------------------------------------------------------------------------- one run

    def _start(self, ask: dict[str, Any]) -> None:
        if ask["id"] <= self._last:
            return  # sent again
        if self._run is not None:
            self._emit(ev="refused", id=ask["id"], why=f"run {self._run.id} is active")
            return
        self._last = ask["id"]
        self._emit(ev="begin", id=ask["id"])  # before any line of the run
        self._run = run = Run(ask)
        self._listener.close()
        try:
            folder = self._unpack(ask)
        except (OSError, ValueError, tarfile.TarError) as error:
            run.why = f"the files of the run cannot be written: {error}"
            run.codes[0] = 1
            self._finish(run)
            return
        run.ask["folder"] = folder
        cold = self._cold or ask.get("cold")
        if cold:
            self._spawn(run)
            return
        self._warm_up(ask["environment"])
        self._fork_if_ready()

    def _unpack(self, ask: dict[str, Any]) -> str:
        """Write the files of a run into a new folder, which replicas of a machine may share."""
        folder = os.path.join(self._root, f"run-{ask['id']}")
        part = os.path.join(self._own, f"run-{ask['id']}-{os.getpid()}")
        if not self._keeps:
            shutil.rmtree(os.path.join(self._root, f"run-{ask['id'] - 2}"), ignore_errors=True)
        if os.path.isdir(folder):
            return folder
        os.makedirs(part)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(ask.pop("tar")))) as tar:
            # Python 3.12 and 3.13 warn without it, and older releases may lack it.
            safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            tar.extractall(part, **safe)
        for where, target in ask.get("links", ()):
            place = os.path.join(part, where)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.symlink(target, place)
        try:
            os.rename(part, folder)  # all files at once: another replica may have been faster
        except OSError:
            if not os.path.isdir(folder):
                raise
            shutil.rmtree(part, ignore_errors=True)
        return folder

    def _asked(self, run: Run, rank: int) -> dict[str, Any]:
        """Return what a process of a run needs to know."""
        ask = run.ask
        return {
            "rank": rank,
            "marked": run.wanted > 1,
            "variables": ask["processes"][rank],
            "folder": ask["folder"],
            "program": ask["program"],
            "arguments": ask["arguments"],
            "learned": self._learned if self._learns and ask["learn"] else "",
            "oom": self._oom,
            # Of several processes of a replica the first one gives the values.
            "results": self._result_variables(run) if rank == 0 else {},
        }

    def _result_variables(self, run: Run) -> dict[str, str]:
        """Return the variables of the writer of ``%output``; empty without it."""
        asked = run.ask.get("results")
        if not asked:
            return {}
        if asked["folder"]:
            os.makedirs(asked["folder"], exist_ok=True)
        target = asked["folder"] or self._message(run)
        return {"CIAO_RESULT_NAMES": asked["names"], "CIAO_RESULT_TARGET": target}

    def _message(self, run: Run) -> str:
        """Return the file for values that the end marker of a run brings to the kernel."""
        return os.path.join(self._own, f"values-{run.id}")

    def _values(self, run: Run) -> dict[str, str]:
        """Return what the program has written there, for the end marker."""
        try:
            with open(self._message(run), encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST_VALUES)
            os.unlink(self._message(run))
        except OSError:
            return {}
        return {"values": text}

    def _fork_if_ready(self) -> None:
        run, zygote = self._run, self._zygote
        if run is None or not run.pending or run.kill_at is not None:
            return
        if zygote is None or not zygote.ready:
            return
        run.pending = False
        for rank in range(run.wanted):
            zygote.send(**self._asked(run, rank))

    def _spawn(self, run: Run) -> None:
        """Start the program in a fresh interpreter, which imports everything again."""
        run.pending = False
        for rank in range(run.wanted):
            ask = self._asked(run, rank)
            environment = {**_variables(run.ask["environment"]), **ask["variables"]}
            process = subprocess.Popen(
                [sys.executable, "-u", _zygote_script(), "--program"],
                stdin=subprocess.PIPE,
                stderr=1,
                env=environment,
            )
            process.returncode = 0  # reaped by the agent
            run.pids[process.pid] = rank
            with contextlib.suppress(OSError):
                process.stdin.write(json.dumps(ask).encode())  # type: ignore[union-attr]
                process.stdin.close()  # type: ignore[union-attr]

    def _stop(self, run: Run, grace: float, why: str) -> None:
        run.why = run.why or why
        run.kill_at = time.monotonic() + grace
        if run.pending:  # nothing has been started
            run.codes = dict.fromkeys(range(run.wanted), -signal.SIGTERM)
            self._finish(run)
            return
        self._signal(signal.SIGTERM)

    def _exited(self, pid: int, code: int) -> None:
        run = self._run
        if run is not None and pid == run.giver:
            self._given(run, code)
            return
        if run is None or pid not in run.pids:
            return
        run.codes[run.pids.pop(pid)] = code
        if len(run.codes) >= run.wanted:
            self._finish(run)
        elif code and run.kill_at is None:
            # As torchrun does: the others would wait for this one for ever.
            run.kill_at = time.monotonic() + _GRACE_OF_PEERS
            self._signal(signal.SIGTERM)

    def _finish(self, run: Run) -> None:
        """End what the run left, then write its end: no line of it can come behind."""
        left = self._kill_rest()
        gives = bool(run.ask.get("files")) and run.why in ("", "deadline") and "folder" in run.ask
        self._run = run if gives else None
        run.pending = False
        run.deadline_at = run.kill_at = None
        codes = [code for _, code in sorted(run.codes.items())]
        code = next((one for one in codes if one and one != -signal.SIGTERM), None)
        code = next((one for one in codes if one), 0) if code is None else code
        self._listener = _free_port()
        self._emit(
            ev="end",
            id=run.id,
            code=code,
            why=run.why,
            left=left,
            cold=self._cold,
            port=self._listener.getsockname()[1],
            took=round(time.monotonic() - run.begun, 3),
            memory=_memory(self._zygote.pid) if self._zygote else 0,
            **({"gives": True, "words": run.ask["files"]["words"]} if gives else {}),
            **({"oom": True} if _ran_out_of_memory(run) else {}),
            **self._values(run),
        )
        self._unheard = code  # the replica ends with it, unless the kernel is still there
        now = self._quiet_since = time.monotonic()
        if now - self._heard > self._run_lease:
            self._end("the kernel is gone: the replica ends as its program did", code)
            return
        if gives:
            self._give(run)
        else:
            self._rest()

    def _rest(self) -> None:
        """Prepare for the next run."""
        if self._heir is not None and self._heir.ready:
            self._take_over()
        self._learn()

    def _give(self, run: Run) -> None:
        """Let a process write the files of a run to the log or to a bucket."""
        ask = {"mark": self._mark, "id": run.id, "pause": _PAUSE, **run.ask["files"]}
        ask["stream"] = os.path.join(self._own, f"stream-{run.id}")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), _GIVER)
        try:
            with open(self._words(run), "wb") as words:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", script, "give"],
                    stdin=subprocess.PIPE,
                    stderr=words,
                    cwd=run.ask["folder"],
                )
        except OSError as error:  # the program may have removed its folder
            self._note_given(run, str(error.strerror))
            return
        process.returncode = 0  # reaped by the agent
        run.giver = process.pid
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(ask).encode())  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]

    def _given(self, run: Run, code: int) -> None:
        """Say that the files of a run are written, or why they are not."""
        fault = ""
        with contextlib.suppress(OSError):
            with open(self._words(run), encoding="utf-8", errors="replace") as file:
                fault = file.read().strip().rpartition("\n")[2][-_LONGEST_FAULT:]
            os.unlink(self._words(run))
        if code and not fault:
            fault = f"the process that gives them ended with exit code {code}"
        self._note_given(run, fault if code else "")

    def _note_given(self, run: Run, fault: str) -> None:
        run.giver = self._run = None
        self._emit(ev="given", id=run.id, fault=fault)
        self._quiet_since = time.monotonic()
        self._rest()

    def _words(self, run: Run) -> str:
        return os.path.join(self._own, f"given-{run.id}")

    # ------------------------------------------------------------------------------- zygotes

    def _warm_up(self, environment: dict[str, str]) -> None:
        """Start a zygote with these variables, unless there is one."""
        if self._cold or (self._zygote and self._zygote.environment == environment):
            return
        self._cool()
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            [
                sys.executable,
                "-u",
                _zygote_script(),
                "--zygote",
                str(theirs.fileno()),
                *self._preload,
            ],
            stdin=subprocess.DEVNULL,
            # One pipe: a container's two are copied by two threads, and a traceback could come
            # behind the end of its run.
            stderr=1,
            pass_fds=[theirs.fileno()],
            env=_variables(environment),
        )
        process.returncode = 0  # reaped by the agent
        theirs.close()
        self._zygote = zygote = Zygote(process.pid, ours, environment)
        self._picker.register(ours, selectors.EVENT_READ, functools.partial(self._hear, zygote))

    def _cool(self) -> None:
        for one in (self._zygote, self._heir):
            if one is not None:
                self._drop(one)
                _kill(one.pid, signal.SIGKILL)
        self._zygote = self._heir = None

    def _drop(self, zygote: Zygote) -> None:
        self._picker.unregister(zygote.channel)
        zygote.channel.close()

    def _hear(self, zygote: Zygote) -> None:
        if zygote not in (self._zygote, self._heir):
            return  # replaced in this turn of the loop
        messages, descriptor = zygote.receive()
        for message in messages:
            if "forked" in message:
                if self._run is not None:
                    self._run.pids[message["forked"]] = message["rank"]
                    if self._run.kill_at is not None:
                        self._signal(signal.SIGTERM)
            elif "exit" in message:
                self._exited(message["exit"], message["code"])
            elif "heir" in message and descriptor is not None:
                heir = Zygote(message["heir"], socket.socket(fileno=descriptor), zygote.environment)
                self._heir = heir
                self._picker.register(
                    heir.channel, selectors.EVENT_READ, functools.partial(self._hear, heir)
                )
            elif message.get("ready"):
                self._judge(zygote, safe=message["safe"])
            elif message.get("gone"):
                self._lose(zygote)

    def _judge(self, zygote: Zygote, *, safe: bool) -> None:
        """Accept a zygote whose imports are done, unless a fork of it would not be safe."""
        if zygote is self._heir:
            if not safe:
                self._learns = False
                self._discard_heir()
                return
            zygote.ready = True
            if self._run is None:
                self._take_over()
            return
        zygote.ready = True
        if safe:
            self._fork_if_ready()
            return
        self._cold = True
        self._cool()
        if self._run is not None and self._run.pending:
            self._spawn(self._run)

    def _discard_heir(self) -> None:
        heir, self._heir = self._heir, None
        if heir is not None:
            self._drop(heir)
            _kill(heir.pid, signal.SIGKILL)

    def _take_over(self) -> None:
        """Let the heir be the zygote from now on; the old one ends as its channel does."""
        old, self._zygote, self._heir = self._zygote, self._heir, None
        if old is not None:
            self._drop(old)

    def _learn(self) -> None:
        """Let an heir import what the last program imported; nobody waits for it."""
        try:
            with open(self._learned, encoding="utf-8") as file:
                names = json.load(file)
            os.unlink(self._learned)
        except (OSError, ValueError):
            return
        if names and self._learns and self._zygote and self._zygote.ready and not self._heir:
            self._zygote.send(bring=names)

    def _lose(self, zygote: Zygote) -> None:
        """Go on without a zygote that has ended; what it forked is the agent's own child now."""
        if zygote is self._heir:
            self._learns = False
            self._discard_heir()
            return
        environment = zygote.environment
        ready = zygote.ready
        self._cool()
        run = self._run
        if run is None:
            self._cold = self._cold or not ready  # an import ends the process
            self._warm_up(environment)
            return
        if run.pending:
            self._cold = True  # an import ends the process: let the program show it
            self._spawn(run)
            return
        if len(run.pids) + len(run.codes) < run.wanted:
            run.why = "the process that forks the program was killed"
            for rank in range(run.wanted):
                run.codes.setdefault(rank, 1)
            self._finish(run)
            self._warm_up(environment)
            return
        for pid in list(run.pids):  # reaped by the zygote, which could not report it
            if not os.path.exists(f"/proc/{pid}"):
                self._exited(pid, 1)
        self._warm_up(environment)

    # ------------------------------------------------------------------------------- processes

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._exited(pid, os.waitstatus_to_exitcode(status))

    def _spare(self) -> set[int]:
        return {one.pid for one in (self._zygote, self._heir) if one is not None}

    def _signal(self, number: int) -> None:
        for pid in _descendants(os.getpid(), self._spare()):
            _kill(pid, number)

    def _kill_rest(self) -> int:
        """Kill all processes of a run; return how many there were at first."""
        until = time.monotonic() + _PATIENCE
        first = None
        while time.monotonic() < until:
            left = _descendants(os.getpid(), self._spare())
            first = len(left) if first is None else first
            if not left:
                break
            for pid in left:
                _kill(pid, signal.SIGKILL)
            self._reap_orphans()
            time.sleep(0.002)
        self._reap_orphans()
        return first or 0

    def _reap_orphans(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    # ------------------------------------------------------------------------------- output

    def _ready(self) -> None:
        port = self._listener.getsockname()[1]
        self._emit(ev="ready", port=port, host=self._host or _address(), root=self._root)

    def _emit(self, **what: Any) -> None:
        """Write a marker with one call; a line that a program left open is ended before it."""
        data = f"\n{self._mark}{json.dumps(what, separators=(',', ':'))}\n".encode()
        while data:
            data = data[os.write(1, data) :]


class Zygote:
    """The agent's end of the channel to a zygote."""

    def __init__(self, pid: int, channel: socket.socket, environment: dict[str, str]) -> None:
        self.pid, self.channel, self.environment = pid, channel, environment
        self.ready = False
        self._text = b""

    def send(self, **what: Any) -> None:
        """Send a request; one that cannot be sent is answered by the end of the channel."""
        with contextlib.suppress(OSError):
            self.channel.sendall(json.dumps(what).encode() + b"\n")

    def receive(self) -> tuple[list[dict[str, Any]], int | None]:
        """Return the messages that have arrived, and a descriptor that came with them."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.channel, 1 << 16, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            return [{"gone": True}], None
        *lines, self._text = (self._text + data).split(b"\n")
        found = descriptors[0] if descriptors else None
        return [json.loads(line) for line in lines], found


def _variables(given: dict[str, str]) -> dict[str, str]:
    """Return the variables of a new interpreter; ciao's folder stays first in PYTHONPATH."""
    merged = {**os.environ, **given}
    merged.pop("CIAO_WARM", None)
    first = os.environ.get("PYTHONPATH", "").split(os.pathsep)[0]
    if "PYTHONPATH" in given and os.path.basename(first) == ".ciao":
        merged["PYTHONPATH"] = os.pathsep.join([first, given["PYTHONPATH"]])
    return merged


def _zygote_script() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "ciao_warm_zygote.py")


def _descendants(root: int, spare: set[int]) -> list[int]:
    """Return the living processes below one, except those to spare."""
    children: dict[int, list[int]] = {}
    dead = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
                if fields[0] in (b"Z", b"X"):
                    dead.add(int(entry))
    found, todo = [], [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(pid)
            if pid not in spare and pid not in dead:
                found.append(pid)
    return found


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _drain(wake: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        wake.recv(4096)


def _memory(pid: int) -> int:
    """Return the resident memory of a process in MB; 0 if it is unknown."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))
    except (OSError, StopIteration):
        return 0


def _memory_kills() -> int:
    """Return how many processes of this container were killed for its memory limit.

    The files are those of cgroup v2 and v1 (Linux, admin-guide/cgroup-v2 and cgroup-v1/memory).
    """
    for name in ("memory.events", "memory/memory.oom_control"):
        place = f"/sys/fs/cgroup/{name}"
        with contextlib.suppress(OSError, ValueError, StopIteration), open(place, "rb") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(b"oom_kill "))
    return 0


def _ran_out_of_memory(run: Run) -> bool:
    """Return whether a process of a run was killed for the memory limit of the container."""
    return -signal.SIGKILL in run.codes.values() and _memory_kills() > run.memory_kills


def _free_port() -> socket.socket:
    """Return a bound socket, which keeps a port until the next run begins."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


def _address() -> str:
    """Return the address of this machine or pod for other replicas, without a request to DNS."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


if __name__ == "__main__":
    sys.exit(Agent(json.loads(os.environ["CIAO_WARM"])).loop())
