"""Reads what Linux tells about the processes of a job: proc(5).

A part of programs that run in pods (:mod:`.program_texts`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping

MOST = 64
"""Processes of a replica that are asked at most."""
_NAMES = ("ciao-zygote",)
"""Names of processes of ciao that have the command line of a program's."""
LOCAL_RANKS = (
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),  # of torchrun
    ("LOCAL_RANK", "LOCAL_SIZE"),  # of DeepSpeed's launcher
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
"""Variables with the number of a process in its replica, and with their count."""
_RANK_SIGN = re.compile(r"/memfd:ciao-rank-([0-9]{1,4}) \(deleted\)")
"""What a descriptor of a process in a warm replica leads to (warm/zygote/rank_sign.py)."""


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


def to_ask(mark: str) -> list[tuple[int, dict[str, str]]]:
    """Return number and environment of the processes of a job that are asked, by number.

    Of a replica with too many, those that it started go before the children of these.
    """
    found = list(processes(mark))
    replicas = {pid: variables.get("CIAO_REPLICA", "") for pid, variables in found}
    children = {pid for pid, name in replicas.items() if replicas.get(stat(pid)[1]) == name}
    counts: dict[str, int] = {}
    kept = set()
    for pid in sorted(replicas, key=lambda pid: (pid in children, pid)):
        counts[replicas[pid]] = counts.get(replicas[pid], 0) + 1
        if counts[replicas[pid]] <= MOST:
            kept.add(pid)
    return [one for one in found if one[0] in kept]


def rank_of(variables: Mapping[str, str]) -> str:
    """Return the number of a process among those of its replica; "" if it is alone.

    Without a count a 0 tells nothing: ciao gives it to replicas of one process. Any other number
    tells that there are several, as those of the launchers of DeepSpeed and Lightning do.

    Args:
        variables: Its environment.
    """
    if variables.get("LOCAL_WORLD_SIZE") == "1":  # mpirun may count all ranks of the machine
        return ""
    for name, count in LOCAL_RANKS:
        found = variables.get(name, "")
        if found.isdigit() and variables.get(count, "1" if found == "0" else "") != "1":
            return found
    return ""


def rank_in(pid: int, variables: Mapping[str, str]) -> str:
    """Return the number of a process among those of its replica; "" if it is alone.

    A fork in a warm replica has other variables than Linux tells, and shows its number itself.

    Args:
        pid: The process.
        variables: Its environment, as Linux tells it.
    """
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    for name in names:
        try:
            found = _RANK_SIGN.fullmatch(os.readlink(f"{folder}/{name}"))
        except OSError:
            continue  # it has just been closed
        if found:
            return found[1]
    return rank_of(variables)


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
