"""Keeps the files of ``%output`` in a pod after the program's end, until they are fetched.

This file runs in pods, with the standard library of Python 3.8: as ``run`` it is the parent of the
program in its container, and as ``keep`` or ``tell`` the only process of a container beside it, a
native sidecar. The kubelet sends that one SIGTERM when the program has ended; the pod, and with it
the job, ends with it. ``keep`` waits until the files are fetched, ``tell`` writes them to its log,
``send`` to a bucket, ``push`` to a registry, and ``save`` to a claim. ``give`` writes them to the
log or to a bucket after a run in a warm replica (:mod:`.warm.agent`), whose container goes on.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from subprocess import Popen
from typing import Any

WITHOUT = "--without"
"""Word before folders of which nothing is copied; no path of ``%output`` is like it."""
_TICK = 0.1
_TRIES, _SILENT = 6, 60.0
"""Tries to write to a bucket, and seconds without an answer after which one is given up."""
_AFTER_CONTACT = 20.0
"""Seconds for which files are kept after a fetch has begun, if it does not go on."""
_FOLDERS = 10
"""Most tries to make a folder on a claim, where the folder around it may be removed."""
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(
    marks: str,
    grace: float,
    copies: str,
    limit: int,
    words: list[str],
    command: list[str],
    skip: Sequence[str] = (),
) -> int:
    """Run the program, and return its exit code in a shell's form.

    Args:
        marks: Folder that the other container sees.
        grace: Seconds from SIGTERM to SIGKILL: the pod's own time is that of the fetch.
        copies: Folder for copies of the files; "" if the other container sees the program's.
        limit: Largest number of bytes to copy.
        words: The paths of ``%output``.
        command: The program.
        skip: Folders of which nothing is copied: volumes.
    """
    files = importlib.import_module("ciao_replica_files")
    of_earlier_try = (files.CONTACT, files.TAKEN, files.STOPPED, files.TOO_LARGE, files.NOT_COPIED)
    for name in of_earlier_try:
        with contextlib.suppress(OSError):
            os.remove(os.path.join(marks, name))
    with contextlib.suppress(OSError), open(os.path.join(marks, files.REPLICA), "w") as file:
        file.write(os.environ.get("CIAO_REPLICA", ""))
    with contextlib.suppress(OSError):
        for name in ("CIAO_OUTPUT", "CIAO_LOGDIR"):
            if name in os.environ:
                os.makedirs(os.environ[name], exist_ok=True)
    stopped: list[bool] = []
    early: list[int] = []
    child: Popen[bytes] | None = None

    def pass_on(number: int, _: Any) -> None:
        if number == signal.SIGTERM and not stopped:
            stopped.append(True)
            files.mark(marks, files.STOPPED)
            signal.setitimer(signal.ITIMER_REAL, max(grace, 0.001))
        if child is None:
            early.append(number)
        else:
            _signal(child, number)

    for one in _PASSED_ON:
        signal.signal(one, pass_on)
    child = program = Popen(command)
    signal.signal(signal.SIGALRM, lambda *_: _signal(program, signal.SIGKILL))
    for number in early:
        _signal(program, number)
    code = _exit_code(program)
    if copies and not stopped:
        copy(files, marks, copies, limit, words, skip)
    return code if code >= 0 else 128 - code


def _signal(program: Popen[bytes], number: int) -> None:
    """Send a signal; unlike Popen's own way it never takes the program's exit code."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(program.pid, number)


def _exit_code(program: Popen[bytes]) -> int:
    """Wait for the program's end, and return its code.

    The first process of a container also gets the ends of processes whose parents are gone.
    """
    if os.getpid() != 1:
        return program.wait()
    while True:
        pid, status = os.wait()
        if pid == program.pid:
            program.returncode = code = _code(status)
            return code


def _code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def copy(
    files: Any,
    marks: str,
    copies: str,
    limit: int,
    words: list[str],
    skip: Sequence[str] = (),
    *,
    open_to_all: bool = False,
) -> None:
    """Copy the files to where others see them, unless they are too large.

    Args:
        files: The module :mod:`.replica_files`.
        marks: Folder for marks.
        copies: Folder for the copies.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
        skip: Folders of which nothing is copied.
        open_to_all: Let users read copies of files that they could not read.
    """
    shutil.rmtree(copies, ignore_errors=True)
    os.makedirs(copies, exist_ok=True)
    found = files.fitting(files.find(".", words, skip), words, limit)
    sizes, faults = found.sizes, dict(found.faults)
    if sum(sizes.values()) > limit:
        with open(os.path.join(marks, files.TOO_LARGE), "w") as file:
            file.write(str(sum(sizes.values())))
        return
    for path in sizes:
        place = os.path.join(copies, path)
        try:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(path, place)
            if open_to_all:
                os.chmod(place, os.stat(place).st_mode | 0o444)
        except OSError as error:
            faults[path] = files.reason(error)
            with contextlib.suppress(OSError):
                os.remove(place)  # a part, for example of a full disk
    with contextlib.suppress(OSError), open(os.path.join(marks, files.NOT_COPIED), "w") as file:
        json.dump(faults, file)


def _gives_nothing(words: Sequence[str]) -> bool:
    """Return whether values alone may come back as files, and the program has written none."""
    files = importlib.import_module("ciao_replica_files")
    place = os.path.join(os.environ.get(files.COPIED, "."), files.VALUES)
    return list(words) == [files.VALUES] and not os.path.isdir(place)


def keep(marks: str, patience: float, words: Sequence[str] = ()) -> None:
    """Wait for the program's end, and then until the files are fetched.

    Args:
        marks: Folder for marks.
        patience: Seconds to wait for somebody who fetches them.
        words: The paths, if values alone may come back.
    """
    ended = _end_of_program()
    if words and _gives_nothing(words):
        return
    while not any(os.path.exists(os.path.join(marks, name)) for name in ("taken", "stopped")):
        until = ended + patience
        with contextlib.suppress(OSError):
            at = os.stat(os.path.join(marks, "contact")).st_mtime
            if at >= ended:
                until = at + min(patience, _AFTER_CONTACT)
        if time.time() > until:
            break
        time.sleep(_TICK)


def tell(marks: str, linger: float, limit: int, words: list[str]) -> None:
    """Wait for the program's end, and write the files into the log of this container.

    Args:
        marks: Folder for marks.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
    """
    _end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")) or _gives_nothing(words):
        return
    importlib.import_module("ciao_replica_files").write_to_log(words, limit)
    time.sleep(linger)


def send(marks: str, pause: float, linger: float, limit: int, words: list[str]) -> str:
    """Wait for the program's end, and write the files to a bucket; return why that failed.

    The address is a secret: it is in no text of this function.

    Args:
        marks: Folder for marks, and for what is sent.
        pause: Seconds before the first new try.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        words: The paths of ``%output``.
    """
    _end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")):
        return "it was stopped before its program had ended"
    if _gives_nothing(words):
        return ""
    files = importlib.import_module("ciao_replica_files")
    try:
        with open(os.path.join(marks, files.REPLICA)) as told:
            address = json.loads(os.environ["CIAO_OUTPUT_ADDRESSES"]).get(told.read())
        uid = os.environ[files.POD_UID]
    except (OSError, KeyError, ValueError) as error:
        return _not_packed(error)
    if not address:
        return "there is no address in the bucket for this replica"
    stream = os.path.join(marks, "stream")
    return _upload(files, address, stream, uid, pause, linger, limit, words)


def give(ask: dict[str, Any]) -> str:
    """Write the files of a run in this folder to the log or to a bucket; return why that failed.

    Args:
        ask: The way, the ``words`` and the ``limit``. By ``log`` the ``mark`` before each line and
            the ``id`` of the run; by ``s3`` the ``address``, the ``pause`` before the first new
            try, and a path for the ``stream``.
    """
    files = importlib.import_module("ciao_replica_files")
    if ask["way"] == "s3":
        address, stream = ask["address"], ask["stream"]
        try:
            return _upload(
                files, address, stream, "", ask["pause"], 0.0, ask["limit"], ask["words"]
            )
        finally:
            with contextlib.suppress(OSError):
                os.remove(stream)

    def put(line: bytes) -> None:
        told = {"ev": "files", "id": ask["id"], "line": line.decode().strip()}
        data = f"\n{ask['mark']}{json.dumps(told, separators=(',', ':'))}\n".encode()
        while data:
            data = data[os.write(1, data) :]

    files.write_to_log(ask["words"], ask["limit"], put)
    return ""


def _upload(
    files: Any,
    address: str,
    stream: str,
    pod: str,
    pause: float,
    linger: float,
    limit: int,
    words: list[str],
) -> str:
    """Pack files, and write them to an address; return why that failed."""
    fault = ""
    try:
        with open(stream, "wb") as file:
            files.write_stream(file.write, words, limit, pod)
    except (OSError, KeyError, ValueError) as error:
        return _not_packed(error)
    for number in range(_TRIES):
        time.sleep(pause * number)
        fault = _put(address, stream)
        if not fault:
            time.sleep(linger)
            break
    return fault


def _not_packed(error: Exception) -> str:
    return "the files could not be packed: " + (getattr(error, "strerror", "") or repr(error))


def _put(address: str, stream: str) -> str:
    """Write a file to an address; return why that failed."""
    request = importlib.import_module("urllib.request")
    headers = {"Content-Length": str(os.path.getsize(stream))}
    headers["Content-Type"] = "application/octet-stream"
    try:
        with open(stream, "rb") as file:
            ask = request.Request(address, file, headers, method="PUT")
            with request.urlopen(ask, timeout=_SILENT):
                return ""
    except Exception as error:
        code, reason = getattr(error, "code", None), getattr(error, "reason", None)
        if code:
            return "the bucket refused the files: HTTP " + str(code)
        return "the bucket cannot be reached: " + str(reason or type(error).__name__)


def push(marks: str, pause: float, linger: float, limit: int, words: list[str]) -> str:
    """Wait for the program's end, and push the files to a registry; return why that failed.

    The arguments are those of :func:`send`.
    """
    registry = importlib.import_module("ciao_registry_push")
    _end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")):
        return "it was stopped before its program had ended"
    if _gives_nothing(words):
        return ""
    fault: str = registry.push(marks, pause, limit, words)
    if not fault:
        time.sleep(linger)
    return fault


def save(
    marks: str,
    linger: float,
    limit: int,
    folder: str,
    words: list[str],
    skip: Sequence[str] = (),
) -> str:
    """Wait for the program's end, and copy the files to a claim; return why that failed.

    The replica's folder there gets its name when all is in it, in place of that of an earlier try.

    Args:
        marks: Folder for marks.
        linger: Seconds after that for which the pod stays, so that other replicas can end too.
        limit: Largest number of bytes.
        folder: The folder of the job on the claim.
        words: The paths of ``%output``.
        skip: Folders of which nothing is copied.
    """
    _end_of_program()
    if os.path.exists(os.path.join(marks, "stopped")):
        return "it was stopped before its program had ended"
    if _gives_nothing(words):
        return ""
    files = importlib.import_module("ciao_replica_files")
    part = ""
    before = os.umask(0o022)  # whoever reads the claim may be another user
    try:
        replica = files.read_mark(marks, files.REPLICA)
        if not re.fullmatch(r"[a-z]+-[0-9]+", replica):  # the program can write it
            raise ValueError("the name of the replica is damaged")
        uid = os.environ[files.POD_UID]
        place = os.path.join(folder, replica)
        part = place + "." + uid
        shutil.rmtree(part, ignore_errors=True)
        made = _make_part(folder, part)
        for name in (files.TOO_LARGE, files.NOT_COPIED):  # of copies that are here already
            with contextlib.suppress(FileNotFoundError):
                text = files.read_mark(marks, name)
                with open(os.path.join(part, name), "w") as own:
                    own.write(text)
        if not os.path.exists(os.path.join(part, files.TOO_LARGE)):
            os.chdir(os.environ.get(files.COPIED, "."))
            copies = os.path.join(part, files.COPIES)
            copy(files, part, copies, limit, words, skip, open_to_all=True)
        with open(os.path.join(part, files.POD_MARK), "w") as file:
            file.write(uid)
        if not os.path.samestat(os.stat(part), os.fstat(made)):
            raise ValueError("its folder was removed meanwhile")
        shutil.rmtree(place, ignore_errors=True)
        os.rename(part, place)
        files.remove_parts(place, place)
    except (OSError, KeyError, ValueError) as error:
        shutil.rmtree(part, ignore_errors=True)
        return "the claim cannot be written: " + (getattr(error, "strerror", "") or repr(error))
    finally:
        os.umask(before)
    time.sleep(linger)
    return ""


def _make_part(folder: str, part: str) -> int:
    """Make the folder of a replica in that of its job; return it, open.

    As long as it is open, no other folder can be taken for it.
    """
    for left in reversed(range(_FOLDERS)):
        _make_job_folder(folder)
        try:
            os.mkdir(part)
        except FileNotFoundError:  # the last files of the job were removed, and its folder
            if not left:
                raise
        else:
            return os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    raise AssertionError("the last round returns or raises")


def _make_job_folder(folder: str) -> None:
    """Make the folder of a job on a claim, and the one that has the folders of all jobs.

    Jobs of other users have theirs beside it. As in /tmp, each may write there, and remove its own
    alone; but nobody else can list the names, which cannot be guessed. Replicas of one job may
    be different users too.
    """
    of_all = os.path.dirname(folder)
    os.makedirs(os.path.dirname(of_all), exist_ok=True)
    before = os.umask(0)  # at once: another job may come between two steps
    try:
        for path, mode in ((of_all, 0o1733), (folder, 0o1777)):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, mode)
    finally:
        os.umask(before)


def _end_of_program() -> float:
    """Wait for SIGTERM, and return its time: the kubelet sends it when the program has ended."""
    ended: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(time.time()))
    while not ended:
        time.sleep(_TICK)
    return ended[0]


def main(arguments: list[str]) -> None:
    """Do what the command of a container asks for."""
    if arguments == ["give"]:
        sys.exit(give(json.load(sys.stdin)) or 0)
    kind, place, seconds, *rest = arguments
    if kind == "keep":
        keep(place, float(seconds), rest)
    elif kind in ("send", "push"):
        work = send if kind == "send" else push
        sys.exit(work(place, float(rest[0]), float(rest[1]), int(rest[2]), rest[3:]) or 0)
    elif kind == "save":
        words, skip = _without(rest[3:])
        sys.exit(save(place, float(rest[0]), int(rest[1]), rest[2], words, skip) or 0)
    elif kind == "tell":
        tell(place, float(rest[0]), int(rest[1]), rest[2:])
    else:
        at = rest.index("--")
        words, skip = _without(rest[2:at])
        command = rest[at + 1 :]
        sys.exit(run(place, float(seconds), rest[0], int(rest[1]), words, command, skip))


def _without(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the paths of ``%output``, and the folders behind them of which nothing is taken."""
    at = words.index(WITHOUT) if WITHOUT in words else len(words)
    return words[:at], words[at + 1 :]


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    main(sys.argv[1:])
