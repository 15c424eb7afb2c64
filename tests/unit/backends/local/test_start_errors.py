"""Errors of the start of a replica, as the supervisor tells them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from ciao_kernel.backends.local.record import Folder
from ciao_kernel.backends.local.supervisor import Supervisor

JOB = {
    "id": "a-1", "name": "a", "created": 1.0, "workdir": "w", "grace": 1.0,
    "replicas": [{"name": "worker-0", "endless": False, "command": ["true"], "env": {}}],
}  # fmt: skip
LIMIT = (
    "no more processes can be started here. End some of yours, or request fewer replicas. "
    "`ulimit -u` or the container sets the limit."
)


class Failing(Folder):
    """A job's folder in which no replica starts."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path)
        self._error = error

    def open_log(self, replica: str) -> BinaryIO:
        raise self._error


@pytest.mark.parametrize(
    ("code", "filename", "said"),
    [
        (errno.ENOENT, "/gone/python", "No such file or directory (/gone/python)."),
        (errno.EPERM, None, "Operation not permitted."),
        (errno.EAGAIN, None, LIMIT),
    ],
)
def test_the_reason_is_said(tmp_path: Path, code: int, filename: str | None, said: str) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    Folder(folder).write_job(JOB)
    supervisor = Supervisor(Failing(folder, OSError(code, os.strerror(code), filename)))
    supervisor._start(supervisor.replicas[0], None)
    assert (supervisor.state, supervisor.reason) == ("Failed", "StartError")
    assert supervisor.message == f"worker-0 cannot be started: {said}"
