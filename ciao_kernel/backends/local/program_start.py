"""Starts a replica's program: fork(2) and execve(2), with the reason if it cannot be started.

The supervisor uses it instead of :mod:`subprocess`, whose import takes a sixth of its start.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Mapping

TYPE_CHECKING = False  # not from typing, whose import takes a tenth of the start
if TYPE_CHECKING:
    from typing import NoReturn

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""An ignored signal would stay ignored in the program."""


def start(
    command: list[str],
    workdir: str,
    environment: Mapping[str, str],
    output: int,
    prepare: Callable[[], None],
) -> int:
    """Start a program in a session of its own, without input; return its process id.

    This process has its three standard descriptors, and no thread but this one. All others are not
    inherited, as Python opens them.

    Args:
        command: The program, which is looked up in the environment's ``PATH``, and its arguments.
        workdir: Its working directory.
        environment: Its environment.
        output: Descriptor of the file that gets its output and its errors.
        prepare: Called in the new process before the program begins.

    Raises:
        OSError: It cannot be started, or ``prepare`` failed.
    """
    reader, writer = os.pipe()  # neither is inherited by a program
    try:
        pid = os.fork()
        if not pid:
            _become(command, workdir, environment, output, prepare, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    if said:
        os.waitpid(pid, 0)
        number, text, place = said.decode(errors="surrogatepass").split("\0", 2)
        raise OSError(int(number), text, place)
    return pid


def exit_code(pid: int) -> int | None:
    """Return the exit code of a program that has ended, minus the signal that killed it; or None.

    A program is asked only until it has one.
    """
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def _become(
    command: list[str],
    workdir: str,
    environment: Mapping[str, str],
    output: int,
    prepare: Callable[[], None],
    writer: int,
) -> NoReturn:
    """Replace this forked process by the program, or write why that is impossible, and end."""
    place = ""
    try:
        os.setsid()
        prepare()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        place = workdir
        os.chdir(place)
        place = command[0] if command else ""
        os.execvpe(place, command, environment)
    except OSError as error:
        place = place or str(error.filename or "")  # not each place where PATH leads to
        reason = f"{error.errno or errno.EPERM}\0{error.strerror or error}\0{place}"
        os.write(writer, reason.encode(errors="surrogatepass"))
    except BaseException as error:
        os.write(writer, f"{errno.EINVAL}\0{error}\0{place}".encode(errors="surrogatepass"))
    finally:
        os._exit(255)
