"""Connects a front end to a process that waits at a prompt, on the machine or in the pod of both.

:mod:`.debugger` is the other side. A pod runs this file and its part as one text
(:mod:`.program_texts`): standard library, from Python 3.8 on.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence

from ciao_kernel.delivery.inspection.process_state import processes, rank_of

_FOLDER, _SOCKET, _OPEN = "ciao-debug-", "socket", "open"
NOBODY, OPEN = 3, 4
"""Exit codes of the program if no process waits, and if its prompt is open elsewhere."""


def connect(
    mark: str, replica: str, pid: int, folders: Sequence[str], rank: str = ""
) -> socket.socket | int:
    """Return a connection to a process that waits; :data:`NOBODY` or :data:`OPEN` if none does.

    Args:
        mark: Variable with its value, such as ``CIAO_JOB=mnist``, of all processes of the job.
        replica: Name of its replica; "" in a pod, which has only one.
        pid: Number of the process; 0 means any of the replica.
        folders: Where the process may have its folder.
        rank: Its number in its replica; "" means any.
    """
    answer = NOBODY
    for one in _processes(mark, replica, rank):
        if pid in (0, one):
            for base in folders:
                found = _connect(os.path.join(base, f"{_FOLDER}{one}"), one)
                if not isinstance(found, int):
                    return found
                answer = max(answer, found)
    return answer


def carry(connection: socket.socket | int) -> None:
    """Copy lines both ways until one side ends; ends this process."""
    if isinstance(connection, int):
        sys.exit(connection)

    def typed() -> None:
        try:
            for line in sys.stdin:
                connection.sendall(line.encode())
        except OSError:
            pass
        os._exit(0)  # nobody is there any more

    threading.Thread(target=typed, daemon=True).start()
    while True:
        data = connection.recv(1 << 16)
        if not data:
            os._exit(0)
        while data:
            data = data[os.write(1, data) :]


def _processes(mark: str, replica: str, rank: str) -> Iterator[int]:
    for pid, variables in processes(mark):
        own = replica in ("", variables.get("CIAO_REPLICA", ""))
        if own and rank in ("", rank_of(variables)):
            yield pid


def _connect(folder: str, pid: int) -> socket.socket | int:
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return NOBODY
    one = socket.socket(socket.AF_UNIX)
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            raise PermissionError
        one.connect(f"/proc/self/fd/{opened}/{_SOCKET}")
        return one
    except OSError:
        one.close()
        return OPEN if _is_open(opened, pid) else NOBODY
    finally:
        os.close(opened)


def _is_open(folder: int, pid: int) -> bool:
    """Return whether a process has a front end; a killed one has left what it wrote."""
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            return False
        opened = os.open(_OPEN, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            said = os.read(opened, 100)
        finally:
            os.close(opened)
        with open(f"/proc/{pid}/stat", "rb") as file:
            return said == file.read().rpartition(b")")[2].split()[19]
    except OSError:
        return False
