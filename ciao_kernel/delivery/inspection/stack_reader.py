"""Asks the processes of a job, on the machine or in the pod of this process, where they stand.

:mod:`.stack_handler` explains the signals. A process is first asked in Python, which is safe at any
time and gives all threads. One that does not answer is in a library in C, and dumps the stack of
its main thread. A signal is sent only to a process that has the handler: by default it ends a
process.

A pod runs the text of this file (:func:`program`): standard library, from Python 3.8 on.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_NAME = "ciao-inside-"
DUMP, ASK, _WAKE = (int(signal.SIGRTMIN) + number for number in (5, 6, 7))
_HALT, _HALTED = b"halt", "halt:"
_PAUSE = 0.005
_RAN = 1_000_000
"""Nanoseconds on a processor within which a process that runs Python has answered."""
_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Variables with the number of a process in its replica."""
MOST = 64
"""Processes of a replica that are asked at most."""
_LARGEST = 4 * 1024 * 1024
_CIAOS = (".ciao/", ".ciao-warm/", "ciao_warm_agent.py", "ciao_warm_zygote.py")
"""Files of ciao in the folder of a program; warm replicas run their agent there."""
_NAMES = ("ciao-zygote",)
"""Names of processes of ciao that have the command line of a program's."""
_FRAME = '  File "'
"""Begin of a line of faulthandler with a call: ``  File "a.py", line 3 in work``."""


def look(mark: str, own: str, patience: float) -> list[dict[str, Any]]:
    """Return what each process of a job does.

    Args:
        mark: Variable with its value, such as ``CIAO_JOB=mnist``, of all processes of the job.
        own: Folder of the program; the lines of its files are read.
        patience: Seconds for the answers in Python, and the same again for those in C.
    """
    asked = [_Process(pid, variables) for pid, variables in processes(mark)][:MOST]
    try:
        for one in asked:
            one.ask()
        began = time.monotonic()
        _wait([one for one in asked if one.waits], began + patience / 2)
        for one in asked:
            one.wake()
        _wait([one for one in asked if one.waits], began + patience)
        _wait([one for one in asked if one.waits], time.monotonic() + patience, dumps=True)
        own_folders = folders(own, [one.variables for one in asked])
        return [one.record(own_folders) for one in asked]
    finally:
        for one in asked:
            one.close()


def program(mark: str, own: str, patience: float) -> str:
    """Return the text of a program that prints the result of :func:`look` as JSON."""
    import inspect
    import sys

    text = inspect.getsource(sys.modules[__name__])
    return f"{text}\nprint(json.dumps(look({mark!r}, {own!r}, {patience!r})))\n"


def halt(mark: str, replica: str, patience: float, rank: str = "") -> str:
    """Let the process that runs the program of a replica stop for its debugger.

    Its other processes, such as torchrun or data loaders, are passed over.

    Args:
        mark: Variable with its value of all processes of the job.
        replica: The replica; "" in a pod, which has only one.
        patience: Seconds for the answer, which a process in a library in C gives later.
        rank: Number of the process in its replica; "" means the first one that stops.

    Returns:
        How the process answered, see :mod:`.debugger`; ``silent`` if it did not, "" if there is
        none.
    """
    answer = ""
    for pid, variables in processes(mark):
        own = not rank or rank in [variables.get(one) for one in _RANKS]
        if own and replica in ("", variables.get("CIAO_REPLICA", "")):
            one = _Process(pid, variables)
            try:
                one.ask(_HALT)
                _wait([one], time.monotonic() + patience)
            finally:
                one.close()
            answer = one.halted or ("silent" if one.waits else answer or "none")
            if answer in ("stops", "open", "silent"):
                break
    return answer


def halt_program(mark: str, patience: float, rank: str = "") -> str:
    """Return the text of a program that prints the result of :func:`halt`, in a pod."""
    import inspect
    import sys

    text = inspect.getsource(sys.modules[__name__])
    return f"{text}\nprint(halt({mark!r}, '', {patience!r}, {rank!r}))\n"


class _Process:
    """One process of a job.

    Args:
        pid: Its number.
        variables: Its environment.
    """

    def __init__(self, pid: int, variables: dict[str, str]) -> None:
        self.pid = pid
        self.how = "none"  # it has no handler
        self.waits = False
        self.halted = ""
        self.variables = variables
        self._size = 0
        self._ran = 0
        self._threads: list[Any] = []
        self._path = find(pid)
        self._file = open_file(self._path, pid) if self._path else None

    def ask(self, question: bytes = b"ask") -> None:
        """Ask it in Python."""
        if self._file is None or not catches(self.pid, ASK):
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.how = "asked"  # by somebody else
            return
        self.how, self.waits = "silent", True
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%s %d\n" % (question, os.getpid()), 0)
        self._ran = on_processor(self.pid)
        self._send(_WAKE if self._is_at_lock() else ASK)

    def wake(self) -> None:
        """Interrupt its wait for a lock, in which it does not answer."""
        if self.waits and self._is_at_lock():
            self._send(_WAKE)

    def dump(self) -> None:
        """Let the main thread write its stack if it is in C; the question is taken back."""
        if self.how == "silent" and self._file is not None and is_in_c(self.pid, self._ran):
            os.ftruncate(self._file, 0)
            if self._path != find(self.pid):  # else the stack would be in another file
                self.waits, self.how = False, "none"
                return
            self.how = "c"
            self._send(DUMP)

    def poll(self) -> None:
        """Look for its answer."""
        if self._file is None:
            return
        text = os.pread(self._file, _LARGEST, 0).decode("utf-8", "replace")
        complete, self._size = len(text) == self._size, len(text)  # faulthandler writes in pieces
        if self.how == "c" and complete and (frames := dumped(text)):
            self._threads, self.waits = [["", True, frames]], False
        for line in text.split("\n")[:-1]:
            if line.startswith(_HALTED):
                self.halted, self.waits = line[len(_HALTED) :], False
            if line.startswith("[") and (threads := _answered(line)):
                self._threads, self.waits, self.how = threads, False, "python"

    def record(self, own: Sequence[str]) -> dict[str, Any]:
        """Return what is known, for JSON; ``own`` are the folders of the program."""
        state, parent = stat(self.pid)
        return {
            "pid": self.pid,
            "parent": parent,
            "state": state,
            "how": "silent" if self.waits else self.how,
            "command": command(self.pid),
            "replica": self.variables.get("CIAO_REPLICA", ""),
            "rank": self.variables.get("LOCAL_RANK", ""),
            "threads": [
                [name, main, [with_text(frame, own) for frame in frames]]
                for name, main, frames in self._threads
            ],
        }

    def close(self) -> None:
        """Take the question back, and forget the answer."""
        if self._file is not None:
            if self.how != "asked":
                os.ftruncate(self._file, 0)
            os.close(self._file)

    def _is_at_lock(self) -> bool:
        try:
            with open(f"/proc/{self.pid}/wchan") as file:
                return file.read().startswith("futex")
        except OSError:
            return False

    def _send(self, number: int) -> None:
        if catches(self.pid, number):
            try:
                os.kill(self.pid, number)
            except OSError:
                self.waits = False


def _wait(asked: list[_Process], until: float, *, dumps: bool = False) -> None:
    while asked and time.monotonic() < until:
        if dumps:
            for one in asked:
                one.dump()
        time.sleep(_PAUSE)
        for one in asked:
            one.poll()
        asked = [one for one in asked if one.waits]


def processes(mark: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield number and environment of each process of a job."""
    own, wanted = os.getpid(), mark.encode()
    for name in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if wanted in words and int(name) != own and stat(int(name))[0] not in "ZX":
            pairs = (word.decode("utf-8", "replace").partition("=") for word in words)
            yield int(name), {name: value for name, _, value in pairs}


def find(pid: int) -> str:
    """Return the path of the file of a process's handler; "" if it has none."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return ""
    return next((f"{folder}/{one}" for one in names if is_file(f"{folder}/{one}", pid)), "")


def is_file(path: str, pid: int) -> bool:
    """Return whether a path leads to the file of a process's handler."""
    try:
        return os.readlink(path) == f"/memfd:{_NAME}{pid} (deleted)"
    except OSError:
        return False


def open_file(path: str, pid: int) -> int | None:
    """Open the file of a process's handler; None if it is gone."""
    try:
        opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    if is_file(f"/proc/self/fd/{opened}", pid):
        return opened
    os.close(opened)  # the program has just opened another file under this number
    return None


def is_in_c(pid: int, ran: int) -> bool:
    """Return whether the main thread of a process that has not answered ASK is outside Python.

    On a busy machine it may also not have run since, and then DUMP would meet it anywhere.

    Args:
        pid: The process.
        ran: What :func:`on_processor` returned before it was asked.
    """
    if signals(pid, ASK)[1] or signals(pid, _WAKE)[1]:
        return False
    return stat(pid)[0] in "SD" or on_processor(pid) - ran >= _RAN


def on_processor(pid: int) -> int:
    """Return for how long the main thread of a process has run; nanoseconds."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[0]) or time.monotonic_ns()
    except (OSError, ValueError, IndexError):
        return time.monotonic_ns()  # not every kernel tells it


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal."""
    return signals(pid, number)[0]


def signals(pid: int, number: int) -> tuple[bool, bool]:
    """Return whether the main thread handles a signal, and whether it has not handled it yet."""
    found = {}
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(("Sig", "ShdPnd")):
                    name, _, value = line.partition(":")
                    found[name] = int(value.partition("/")[0], 16) >> (number - 1) & 1
    except (OSError, ValueError):
        pass
    waits = any(found.get(name) for name in ("SigPnd", "ShdPnd", "SigBlk"))
    return bool(found.get("SigCgt")), waits


def stat(pid: int) -> tuple[str, int]:
    """Return state and parent of a process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        return fields[0].decode(), int(fields[1])
    except (OSError, ValueError):
        return "X", 0


def command(pid: int) -> str:
    """Return the name of the program that a process runs, or the one that ciao gave it."""
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            name = file.read().rstrip("\n")
        if name in _NAMES:
            return name
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return os.path.basename(file.read().split(b"\0")[0].decode("utf-8", "replace"))[:80]
    except OSError:
        return ""


def _answered(line: str) -> list[Any]:
    """Return the threads of an answer; none if a program has written something else there."""
    try:
        found = ast.literal_eval(line)
        return [
            [str(name), bool(main), [[str(file), int(at), str(call)] for file, at, call in frames]]
            for name, main, frames in found
        ]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []


def dumped(text: str) -> list[Any]:
    """Return the frames that faulthandler has written, innermost first."""
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        path, _, rest = line[len(_FRAME) :].partition('", line ')
        number, _, name = rest.partition(" in ")
        if line.startswith(_FRAME) and number.isdigit():
            found.append([path, int(number), name])
    return found


_lines: dict[str, list[str]] = {}


def folders(own: str, environments: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the folders of the program; warm replicas have another one for their runs."""
    found = [own]
    for one in environments:
        try:
            root = json.loads(one.get("CIAO_WARM", "{}"))["root"]
        except (ValueError, KeyError, TypeError):
            continue
        if root and isinstance(root, str) and root not in found:
            found.append(root)
    return found


def is_own(path: str, own: Sequence[str]) -> bool:
    """Return whether a file is one of the program's, and none of ciao's beside it."""
    return any(
        path.startswith(folder + "/") and not path[len(folder) + 1 :].startswith(_CIAOS)
        for folder in own
    )


def with_text(frame: Any, own: Sequence[str]) -> list[Any]:
    """Return a frame with whether it is the program's, and the text of its line."""
    path, number, name = frame
    if not is_own(path, own):
        return [path, number, name, False, ""]
    if path not in _lines:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                _lines[path] = file.read(_LARGEST).splitlines()
        except OSError:
            _lines[path] = []
    text = _lines[path][number - 1].strip()[:200] if 0 < number <= len(_lines[path]) else ""
    return [path, number, name, True, text]
