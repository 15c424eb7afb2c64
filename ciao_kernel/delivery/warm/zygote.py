"""The zygote of a warm replica: imports modules once, and is forked for each run of a program.

It imports, and computes nothing: a thread of the framework would not exist in the forks, and the
first operation there would wait for it. After its imports it therefore reports whether a fork is
safe. A fork becomes what ``python cell.py`` would be: a fresh ``__main__``, fresh random state, the
folder of its run, no input.

It runs in replicas, with Python 3.9 or newer and the standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import random
import selectors
import signal
import socket
import sys
import threading
import types
import warnings
from typing import Any

_PARENT_DEATH_SIGNAL, _SET_NAME = 1, 15
NAME = "ciao-zygote"
"""Name of the process, by which readers of stacks know it: it may stand deep in an import."""
_DEVICES = "/dev/nvidia"
_passed: set[int] = set()


class Zygote:
    """Answers the requests of the agent.

    Args:
        channel: The socket to the agent.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        with open("/proc/self/comm", "rb") as file:
            self._name = file.read().rstrip(b"\n")
        _call_process(NAME.encode())
        self._listen()

    def _listen(self) -> None:
        """Make what waits for requests and for the ends of forks; an heir needs its own."""
        self._text = b""
        self._wake, writer = socket.socketpair()
        self._wake.setblocking(False)
        writer.setblocking(False)
        self._writer = writer
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._picker = selectors.DefaultSelector()
        self._picker.register(self._channel, selectors.EVENT_READ)
        self._picker.register(self._wake, selectors.EVENT_READ)

    def serve(self, modules: list[str]) -> dict[str, Any]:
        """Import modules and serve requests; return in each fork, with what it is to run."""
        self._bring(modules)
        while True:
            found = [key.fileobj for key, _ in self._picker.select()]
            if self._wake in found:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
                self._report_ends()
            if self._channel in found:
                data = self._channel.recv(1 << 16)
                if not data:
                    os._exit(0)  # the agent has ended, or has another zygote
                *lines, self._text = (self._text + data).split(b"\n")
                for line in lines:
                    ask: dict[str, Any] = json.loads(line)
                    if "bring" in ask:
                        self._fork_heir(ask["bring"])
                    elif self._fork(ask["rank"]):
                        return ask

    def _say(self, **what: Any) -> None:
        self._channel.sendall(json.dumps(what).encode() + b"\n")

    def _report_ends(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._say(exit=pid, code=os.waitstatus_to_exitcode(status))

    def _bring(self, modules: list[str]) -> None:
        for name in modules:
            try:
                importlib.import_module(name)
            except Exception:  # the program's own import shows it
                continue
        gc.collect()
        gc.freeze()  # so that a collection in a fork copies no pages
        self._say(ready=True, safe=_is_safe())

    def _fork(self, rank: int) -> bool:
        """Return True in the fork."""
        if _fork():
            return False
        # Not by the other process: the program may kill that one before it says so.
        self._say(forked=os.getpid(), rank=rank)
        _call_process(self._name)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._picker.close()
        for one in (self._channel, self._wake, self._writer):
            one.close()
        return True

    def _fork_heir(self, modules: list[str]) -> None:
        """Fork a zygote that imports more, and takes over between two runs."""
        ours, theirs = socket.socketpair()
        pid = _fork()
        if pid:
            socket.send_fds(
                self._channel, [json.dumps({"heir": pid}).encode() + b"\n"], [ours.fileno()]
            )
            ours.close()
            theirs.close()
            return
        old = (self._channel, self._wake, self._writer, ours)
        self._picker.close()
        for one in old:
            one.close()
        self._channel = theirs
        self._listen()
        self._bring(modules)


def _call_process(name: bytes) -> None:
    """Give this process the name that ps(1) shows."""
    ctypes.CDLL(None).prctl(_SET_NAME, name, 0, 0, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python and some frameworks warn of forks beside threads; is_safe() has looked for them.
        warnings.simplefilter("ignore")
        return os.fork()


def _is_safe() -> bool:
    """Return whether a fork can run a program: no thread of Python, and no GPU is open."""
    if threading.active_count() > 1:
        return False
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(_DEVICES):
                return False
    return True


# --------------------------------------------------------------------------------- the program


class _Marked(io.TextIOWrapper):
    """Writes whole lines, each with the number of its process, as under ciao's torchrun."""

    inside = False

    def write(self, text: str) -> int:
        if text:
            mark = f"[{os.environ.get('LOCAL_RANK')}] "
            before = "" if self.inside else mark
            self.inside = not text.endswith("\n")
            body = text if self.inside else text[:-1]
            body = before + body.replace("\n", "\n" + mark)
            super().write(body if self.inside else body + "\n")
        return len(text)


def run(ask: dict[str, Any]) -> None:
    """Run a program as ``python cell.py`` does, in this process.

    Args:
        ask: The program, its folder, its arguments and its variables.
    """
    with contextlib.suppress(OSError):
        os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if ask["oom"]:
        # Out of memory, the kernel kills the program, and not the agent.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    os.environ.pop("CIAO_WARM", None)
    os.environ.update(ask["variables"])
    folder = ask["folder"]
    os.chdir(folder)
    # Half a line is shown at once, as before the fork to this process (site_start.py).
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    if ask["marked"]:
        _mark_lines()
    _renew_random_state()
    path = os.path.join(folder, ask["program"])
    sys.argv = [path, *ask["arguments"]]
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(path))
    importlib.invalidate_caches()
    if ask["learned"]:
        known = set(sys.modules)
        atexit.register(lambda: _leave_names(ask["learned"], known))  # first, so it runs last
    if ask["results"]:
        _return_values(ask["results"])
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __spec__=None, __package__=None)
    sys.modules["__main__"] = main
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _pass_over
    _leave(_execute(path, main.__dict__), main.__dict__)


def _return_values(variables: dict[str, str]) -> None:
    """Let the writer of ``%output``, which is beside the agent, write at the program's end."""
    os.environ.update(variables)
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), ".ciao")
    sys.path.insert(0, here)
    writer = importlib.import_module("ciao_result_writer")
    sys.path.remove(here)
    writer.register(here)


def _pass_over(*_: Any, **__: Any) -> None:
    """Take the place of breakpoint(): warm replicas have no debugger, and no input."""
    line = sys._getframe(1).f_lineno
    text = f"breakpoint() at line {line} is passed over: leave %warm out to debug.\n"
    if line not in _passed:  # it may be in a loop
        _passed.add(line)
        sys.stderr.write(text)
        sys.stderr.flush()


def _execute(path: str, names: dict[str, Any]) -> int:
    """Run the program; return its exit code."""
    try:
        with open(path, "rb") as source:
            code = compile(source.read(), path, "exec", dont_inherit=True)
        exec(code, names)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF
        print(end.code, file=sys.stderr, flush=True)
        return 1
    except BaseException as error:
        trace = error.__traceback__.tb_next if error.__traceback__ else None
        error.__traceback__ = trace  # without the frame of this function
        sys.excepthook(type(error), error, trace)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave(code: int, names: dict[str, Any]) -> None:
    """End the process as Python does, but without taking the framework apart: that takes seconds.

    Threads end, functions of ``atexit`` run, the program's own objects are destroyed and its files
    are flushed.
    """
    for step in (
        threading._shutdown,  # type: ignore[attr-defined]
        atexit._run_exitfuncs,
        names.clear,
        gc.collect,  # what the zygote has imported is not looked at
        _flush_files,
    ):
        with contextlib.suppress(BaseException):
            step()
    os._exit(code)


def _flush_files() -> None:
    for one in gc.get_objects():
        if isinstance(one, io.IOBase):
            with contextlib.suppress(Exception):
                one.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    ctypes.CDLL(None).fflush(None)


def _mark_lines() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        setattr(
            sys,
            name,
            _Marked(stream.buffer, stream.encoding, stream.errors, line_buffering=True),
        )


def _renew_random_state() -> None:
    """Give the fork random numbers of its own: generators that were made by an import are equal."""
    random.seed()
    with contextlib.suppress(Exception):
        sys.modules["numpy"].random.seed()
    with contextlib.suppress(Exception):
        sys.modules["torch"].default_generator.seed()


def _leave_names(path: str, known: set[str]) -> None:
    """Leave the names of the modules that the program has imported, but not its own ones."""
    library = os.path.dirname(os.__file__)
    names = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name not in known and ("-packages" in file or file.startswith(library)):
            names.append(name)
    with contextlib.suppress(OSError):
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as stream:
            json.dump(names, stream)
        os.replace(f"{path}.{os.getpid()}", path)


def main(words: list[str]) -> None:
    """Be a zygote, or run one program without one."""
    if words[0] == "--program":
        ask = json.loads(sys.stdin.buffer.read())
    else:
        # Below the agent alone: without it nobody would end this process.
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        ask = Zygote(socket.socket(fileno=int(words[1]))).serve(words[2:])
    run(ask)


if __name__ == "__main__":
    main(sys.argv[1:])
