"""The folder of this user in the setting ``storage``.

It holds what ciao believes and runs: records of jobs, caches with programs. So nobody else may
write to it. A storage folder that several users share, such as ``/shared/ciao`` on a file server,
therefore has one folder for each of them: ``/shared/ciao/ada``.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from ciao_kernel import private_files
from ciao_kernel.config.user_file import can_be_saved, user_file
from ciao_kernel.errors import EnvironmentFault

_OTHER = "Name another folder: `%ciao config storage=/some/folder`."


@dataclass(frozen=True, slots=True)
class OwnFolder:
    """The folder of this user, and why it is not the storage folder itself."""

    path: Path
    reason: str = ""
    """A clause with the storage folder; "" if that is this user's."""

    def prepare(self, *names: str) -> Path:
        """Create a folder in this folder, for this user alone, and return it.

        Args:
            names: Names of the folders, each in the previous one.

        Raises:
            EnvironmentFault: It cannot be created, or other users may write to it.
        """
        path = self.path.joinpath(*names)
        try:
            private_files.make_folders(path, self.path)
        except private_files.Untrusted as error:
            raise EnvironmentFault(
                f"the folder of jobs must be yours alone, but {error}.",
                f"Its drive may have no permissions. {remedy()}",
            ) from None
        except OSError as error:
            why = f" ({self.reason})" if self.reason else ""
            raise EnvironmentFault(
                f"the folder {error.filename or path} cannot be created: {error.strerror}{why}.",
                remedy(),
            ) from error
        return path


def remedy() -> str:
    """Return how to name another storage folder.

    The user of a container may have no home folder that it may write to. There ``ciao config`` has
    no file to save a setting in, and only in a cell does it work, for the kernel of the cell.
    """
    if can_be_saved():
        return _OTHER
    return (
        f"{user_file()} cannot be written, so name another folder by a variable: `export "
        "CIAO_STORAGE=/some/folder`, or for one kernel in a cell: %ciao config "
        "storage=/some/folder"
    )


def own_folder(storage: Path, *, private: bool = False) -> OwnFolder:
    """Return this user's folder in a storage folder; nothing is created or changed.

    Args:
        storage: The setting.
        private: Whether the folder is this user's by its place, and shared with nobody on purpose.
            An umask of 002 or a volume's ``fsGroup`` may still have opened it to a group.
    """
    try:
        status = storage.stat()
    except OSError:  # it will be created, or its use reports the error
        return OwnFolder(storage)
    if not stat.S_ISDIR(status.st_mode):  # its use reports the error
        return OwnFolder(storage)
    if status.st_uid != os.geteuid():
        reason = f"{storage} belongs to {private_files.user_name(status.st_uid)}"
    elif private or private_files.is_own(status):
        return OwnFolder(storage)
    else:
        reason = f"other users may write to {storage}"
    user_id = str(os.geteuid())
    path = storage / (_name() or user_id)
    return OwnFolder(path if _is_usable(path) else storage / user_id, reason)


def _is_usable(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:  # it will be created, or its use reports the error
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _name() -> str:
    """Return the user's name if it can be the name of a folder, else ""."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""
    return "" if name.startswith(".") or "/" in name else name
