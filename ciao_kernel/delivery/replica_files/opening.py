"""Opens a file that was found, of which somebody else may have made a link meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO


def open_inside(base: str, path: str) -> FileIO:
    """Open a file below a folder for reading.

    Links are followed, as when the file was found, but not out of the folder: the container may
    have files that those who write to the folder must not read, such as a password. So the place
    of the open file counts: what its path leads to could change after any look at it.

    Args:
        base: The folder.
        path: The file's path, relative to it.

    Raises:
        OSError: It cannot be read, is no file any more, or leads out of the folder.
    """
    inside = os.path.realpath(base).rstrip(os.sep) + os.sep
    # Not blocking: a named pipe would wait for a writer.
    file = FileIO(os.open(os.path.join(base, path), os.O_RDONLY | os.O_NONBLOCK))
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file any more")
        if not os.readlink(f"/proc/self/fd/{file.fileno()}").startswith(inside):
            raise OSError(errno.EACCES, "it has become a link that leads out of the folder")
    except OSError:
        file.close()
        raise
    return file
