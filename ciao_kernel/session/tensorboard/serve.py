"""The program that runs TensorBoard: it ends with the process that has started it.

:mod:`.server` starts this file by its path, with Python alone; it imports nothing of ciao. Its
standard input ends when its parent ends, even if that was killed. A child that a user's program has
forked from the parent may keep that input open, so the parent's number is read too.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from pathlib import Path

_LOOK = 0.5
"""Seconds between two looks at the parent."""


def main(logdir: str, parent: int) -> None:
    """Serve until the parent ends; then remove the folder.

    Args:
        logdir: Folder whose entries are links to the event files of jobs.
        parent: Number of the process that has started this one.
    """
    address = _serve(logdir)
    with contextlib.suppress(OSError):  # the parent has ended meanwhile
        print(address, flush=True)
    while os.getppid() == parent:
        if select.select([0], [], [], _LOOK)[0] and not os.read(0, 64):
            break
    remove(logdir)
    os._exit(0)  # its threads do not end by themselves


def _serve(logdir: str) -> str:
    from tensorboard import program

    board = program.TensorBoard()
    board.configure(
        argv=[
            "tensorboard",
            f"--logdir={logdir}",
            "--host=127.0.0.1",
            "--port=0",
            "--reload_interval=5",
            "--reload_multifile=true",
        ]
    )
    return str(board.launch())


def words(logdir: Path) -> Path:
    """Return the file beside the folder with what TensorBoard writes."""
    return logdir.with_name(f"{logdir.name}.log")


def remove(logdir: str) -> None:
    """Remove the links and their folder, and nothing behind the links; and the file beside it."""
    with contextlib.suppress(OSError):
        words(Path(logdir)).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for link in Path(logdir).iterdir():
            link.unlink()
        Path(logdir).rmdir()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
