"""Gives a copied file its place, as ``cp`` does: through a link, and with the mode that fits there.

Nothing is ever written to a place itself: a file is whole before it is renamed, so nobody sees a
half of it, and a link, a pipe or a device that appears there meanwhile gets no byte.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_ACL, _NONE = "system.posix_acl_access", (errno.ENODATA, errno.EOPNOTSUPP)
"""Where Linux has the access list of a file, and what it says if there is none, or none can be."""
_RIGHTS = 0o777
"""What a mode says of reading, writing and running: a copy takes over no set-user-ID bit."""


def followed(place: str) -> str:
    """Return the path of the file that is to be replaced: where links at a place lead.

    The kernel follows them, so its own rules hold for links of other users. A place where there is
    nothing is returned as it is.

    Raises:
        OSError: Something that is no file is there, or the links lead to nothing.
    """
    try:
        file = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        if os.path.lexists(place):
            raise OSError(errno.ENOENT, "it is a link to nothing") from None
        return place
    try:
        mode, is_link = os.fstat(file).st_mode, os.path.islink(place)
        refuse_special(mode, "leads to" if is_link else "is")
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not is_link:
            return place
        try:
            real = os.readlink(f"/proc/self/fd/{file}")
        except OSError:
            real = os.path.realpath(place)
        os.lstat(real)  # of a file that was removed meanwhile this is no path
        return real
    finally:
        os.close(file)


def refuse_special(mode: int, way: str) -> None:
    """Refuse what can be written to and is no file.

    Args:
        mode: Of what is at a place.
        way: How the place has it: ``is`` or ``leads to``.

    Raises:
        OSError: It is a pipe, a socket or a device.
    """
    kinds = (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    for is_it, name in kinds:
        if is_it(mode):
            raise OSError(errno.EINVAL, f"it {way} {name}, not a file")


def part_beside(place: str) -> str:
    """Return a new name in the folder of a place, so that a rename there stays on one drive."""
    # Short: the file's own name may be as long as a name can be.
    return os.path.join(os.path.dirname(place), f".{os.urandom(6).hex()}.ciao-part")


def create_part(part: str) -> int:
    """Create the file for what is not whole yet, for this user alone; return its descriptor."""
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
    with contextlib.suppress(OSError):  # an umask of 777: it is opened again
        os.fchmod(file, 0o600)
    return file


def put(part: str, place: str, mode: int) -> None:
    """Give a whole file its mode and then its name.

    A file that is replaced keeps its mode; a new one has that of the source less the umask.

    Args:
        part: The file, beside its place.
        place: Its path; a link there is replaced.
        mode: That of the source.

    Raises:
        OSError: It cannot be renamed.
    """
    folder = os.open(os.path.dirname(place) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        own, name = os.path.basename(part), os.path.basename(place)
        before = None
        with contextlib.suppress(FileNotFoundError):
            before = os.lstat(name, dir_fd=folder)
            refuse_special(before.st_mode, "is")
        file = os.open(own, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
        try:
            if before and stat.S_ISREG(before.st_mode):
                mode = _kept(file, before, f"/proc/self/fd/{folder}/{name}")
            else:
                mode &= _RIGHTS & ~umask()
            with contextlib.suppress(OSError):  # a drive without modes
                os.fchmod(file, mode)
        finally:
            os.close(file)
        os.replace(own, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _kept(file: int, before: os.stat_result, place: str) -> int:
    """Give a file the owner, group and access list of the one that it replaces; return its mode.

    Where that is not allowed, the rights are those of another group: it gets what all others have.
    """
    mode = before.st_mode & _RIGHTS
    with contextlib.suppress(OSError):
        if os.fstat(file).st_uid != before.st_uid:
            os.fchown(file, before.st_uid, -1)
    with contextlib.suppress(OSError):
        if os.fstat(file).st_gid != before.st_gid:
            os.fchown(file, -1, before.st_gid)
    if not _has_list(file, place) or os.fstat(file).st_gid != before.st_gid:
        mode &= ~0o070 | (mode & 0o007) << 3
    return mode


def _has_list(file: int, place: str) -> bool:
    """Give a file the access list of another one, or none; return whether that was possible.

    The rights of the group in its mode are the most that a list gives, so with no list, or with one
    that is inherited from the folder, they would be those of somebody else.
    """
    wanted = b""
    try:
        wanted = os.getxattr(place, _ACL, follow_symlinks=False)
        os.setxattr(file, _ACL, wanted)
    except OSError as error:
        if wanted or error.errno not in _NONE:
            return False
        try:
            os.removexattr(file, _ACL)
        except OSError as why:
            return why.errno in _NONE
    return True


def umask(status: str = "/proc/self/status") -> int:
    """Return the umask of this process.

    Args:
        status: Linux's file that has it. Without it the umask must be set to be read, and files
            that other threads make meanwhile get the wrong one.
    """
    with contextlib.suppress(OSError), open(status, "rb") as lines:
        for line in lines:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    before = os.umask(0o077)
    os.umask(before)
    return before
