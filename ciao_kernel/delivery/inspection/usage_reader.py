"""Reads what the container of this process uses: its control group, of version 1 or 2, and GPUs.

A pod runs the text of this file (:func:`program`): standard library, from Python 3.8 on.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from typing import Any

ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60
"""A limit of version 1 that is none is a number near 2**63."""
_QUERY = "utilization.gpu,memory.used,memory.total"
_GPU_PATIENCE = 5.0
_GPU_TRIES = 3
"""Questions in a row without an answer after which a container counts as one without a GPU."""


def sample(root: str = ROOT, own: str = "/proc/self/cgroup") -> dict[str, Any]:
    """Return what the container uses now; a value that cannot be read is missing.

    Args:
        root: Where control groups are mounted.
        own: The file with the control groups of this process.

    Returns:
        ``memory``, ``peak`` and ``limit`` in bytes, and ``cpu``: seconds of all processors so far.
    """
    groups = _groups(own)
    if os.path.exists(f"{root}/cgroup.controllers"):
        folder = _folder(root, groups.get("", "/"), "memory.current")
        memory, peak, limit = "memory.current", "memory.peak", "memory.max"
        cache = _field(f"{folder}/memory.stat", "inactive_file")
        cpu, second = _field(f"{folder}/cpu.stat", "usage_usec"), 1e6
    else:
        folder = _folder(f"{root}/memory", groups.get("memory", "/"), "memory.usage_in_bytes")
        memory, peak = "memory.usage_in_bytes", "memory.max_usage_in_bytes"
        limit = "memory.limit_in_bytes"
        cache = _field(f"{folder}/memory.stat", "total_inactive_file")
        cpu, second = None, 1e9
        for name in ("cpuacct", "cpu,cpuacct"):
            if cpu is None:
                found = _folder(f"{root}/{name}", groups.get("cpuacct", "/"), "cpuacct.usage")
                cpu = _number(f"{found}/cpuacct.usage")
    used, most = _number(f"{folder}/{memory}"), _number(f"{folder}/{limit}")
    values = {
        "memory": None if used is None else max(0, used - (cache or 0)),
        "peak": _number(f"{folder}/{peak}"),
        "limit": most if most is not None and most < _UNLIMITED else None,
        "cpu": None if cpu is None else cpu / second,
    }
    return {name: value for name, value in values.items() if value is not None}


def look(seconds: float, root: str = ROOT) -> dict[str, Any]:
    """Return a :func:`sample` whose ``cpu`` is the number of busy processors, and ``gpus``.

    Args:
        seconds: Time over which the processors are measured.
        root: Where control groups are mounted.
    """
    began, first = time.monotonic(), sample(root)
    found = gpus()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    ended, last = time.monotonic(), sample(root)
    if "cpu" in first and "cpu" in last:
        last["cpu"] = max(0.0, (last["cpu"] - first["cpu"]) / (ended - began))
    else:
        last.pop("cpu", None)
    if found:
        last["gpus"] = found
    return last


def watch(pause: float, with_gpus: bool = False, root: str = ROOT) -> None:
    """Print a :func:`sample` as a line of JSON again and again, until standard input ends.

    Its ``cpu`` is the number of busy processors since the line before; the first has none.

    Args:
        pause: Seconds between two lines.
        with_gpus: Print ``gpus`` too, which starts a program each time.
        root: Where control groups are mounted.
    """
    before = None
    tries = _GPU_TRIES if with_gpus and shutil.which("nvidia-smi") else 0
    while True:
        at, found = time.monotonic(), sample(root)
        seconds = found.pop("cpu", None)
        if seconds is not None and before is not None and at > before[0]:
            found["cpu"] = max(0.0, (seconds - before[1]) / (at - before[0]))
        before = None if seconds is None else (at, seconds)
        if tries:
            shown = gpus()
            tries = _GPU_TRIES if shown else tries - 1  # a busy machine may answer late
            found.update({"gpus": shown} if shown else {})
        print(json.dumps(found), flush=True)
        if select.select([0], [], [], pause)[0] and not os.read(0, 4096):
            return


def gpus() -> list[list[float | None]]:
    """Return share, memory and total memory of each GPU that nvidia-smi sees; bytes."""
    return read_gpus(ask_gpus(_QUERY))


def ask_gpus(query: str) -> str:
    """Return the answer of nvidia-smi about all GPUs, "" if there is none.

    Args:
        query: Names of values, separated by commas.
    """
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GPU_PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.decode("utf-8", "replace")


def read_gpus(text: str) -> list[list[float | None]]:
    """Return share, memory and total memory of each GPU in the answer of nvidia-smi; bytes."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 3:  # without a driver the answer is a sentence
            found.append(_gpu(words))
    return found


def named_gpus() -> dict[str, list[float | None]]:
    """Return the same as :func:`gpus` by names: the index of a GPU, and its UUID."""
    return read_named_gpus(ask_gpus("index,uuid," + _QUERY))


def read_named_gpus(text: str) -> dict[str, list[float | None]]:
    """Return the same as :func:`read_gpus` for an answer with the index and the UUID before."""
    found = {}
    for line in text.splitlines():
        index, *words = (word.strip() for word in line.split(","))
        if len(words) == 4:
            found[index] = found[words[0]] = _gpu(words[1:])
    return found


def _gpu(words: list[str]) -> list[float | None]:
    """Return the numbers of a GPU: percents as a share, and mebibytes as bytes."""
    share, *sizes = (float(word) if word.isdigit() else None for word in words)
    bytes_ = [None if size is None else size * 1024 * 1024 for size in sizes]
    return [None if share is None else share / 100, *bytes_]


def program(call: str) -> str:
    """Return the text of a program that makes a call of this module: ``watch(2)``."""
    import inspect
    import sys

    return f"{inspect.getsource(sys.modules[__name__])}\n{call}\n"


def _groups(own: str) -> dict[str, str]:
    """Return the path of each controller's group; that of version 2 has the name ""."""
    found = {}
    try:
        with open(own) as file:
            for line in file:
                _, names, path = line.rstrip("\n").split(":", 2)
                found.update(dict.fromkeys(names.split(","), path))
    except (OSError, ValueError):
        pass
    return found


def _folder(mounted: str, path: str, file: str) -> str:
    """Return the folder of a group: a container usually sees its own as the root of the mount."""
    below = mounted + path.rstrip("/")
    return below if os.path.exists(f"{below}/{file}") else mounted


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read(100))
    except (OSError, ValueError):  # also "max", which is no limit
        return None


def _field(path: str, name: str) -> int | None:
    try:
        with open(path) as file:
            for line in file:
                key, _, value = line.partition(" ")
                if key == name:
                    return int(value)
    except (OSError, ValueError):
        pass
    return None
