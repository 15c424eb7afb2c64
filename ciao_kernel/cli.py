# PYTHON_ARGCOMPLETE_OK
"""The command ``ciao``.

Exit codes: 0 success, 1 the job failed or there is a problem on this machine, 2 wrong usage,
130 interrupted, 141 the reader of a pipe ended first, as for any program. `ciao exec` has the exit
code of its command.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel import __version__

if TYPE_CHECKING:
    import argparse
    import asyncio

    from ciao_kernel.config import Settings
    from ciao_kernel.errors import CiaoError

_log = logging.getLogger(__name__)

_FAILED, _USAGE, _INTERRUPTED, _NO_READER = 1, 2, 130, 141
_LATE = 30.0
"""Seconds that an interrupted command waits for a cluster that has not answered yet, so that
nothing is left there. Another Ctrl-C ends the wait."""
_GARBAGE = 50_000
"""New objects after which Python looks for garbage: the imports of a command make no garbage."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line. The console script calls it."""
    gc.set_threshold(_GARBAGE)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    _prepare_streams()
    try:
        return _main(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        _drop_output()  # what a full pipe has not taken: Python would wait for its reader at exit
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return _NO_READER
    except OSError as error:
        # A full disk for a job is reported where the job writes; this error is about our output.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        _drop_output()
        print(f"ciao: the output cannot be written: {error.strerror}.", file=sys.stderr)
        return _FAILED
    finally:
        gc.freeze()  # the end of Python would search all modules for garbage


def _main(words: list[str]) -> int:
    """Parse the words and run the command. Slow modules are imported only if they are needed."""
    from ciao_kernel import commands
    from ciao_kernel.errors import UsageError

    try:
        args = commands.parse(words, _write)
    except UsageError as error:
        return _fail(error, None)
    if args is None:
        return 0
    import asyncio

    from ciao_kernel import log

    log.start()
    if args.verbose:
        log.show_on(sys.stderr, logging.INFO if args.verbose == 1 else logging.DEBUG)

    return asyncio.run(_execute(args))


async def _execute(args: argparse.Namespace) -> int:
    import asyncio

    from ciao_kernel import background, commands, config, log
    from ciao_kernel.commands.verb_table import VERBS
    from ciao_kernel.display.terminal import TerminalDisplay, uses_color
    from ciao_kernel.errors import CiaoError, CommandFailed, SettingError
    from ciao_kernel.model import Owner
    from ciao_kernel.session.owner import current_user
    from ciao_kernel.session.plugin_registry import Registry
    from ciao_kernel.session.session import Session

    verb = VERBS[args.verb]
    try:
        settings = config.load()
    except SettingError as error:
        settings, _ = config.load_with_errors()
        if verb.needs_settings:
            return _fail(error, settings)
    log.write_to(settings.own_storage)
    if verb.is_logged:
        version = sys.version.partition(" ")[0]
        _log.debug("ciao %s, Python %s: %s", __version__, version, args.verb)
    json = getattr(args, "output", "") == "json"
    display = TerminalDisplay(settings, sys.stderr if json else sys.stdout)
    session = Session(
        Registry(), Owner(f"{current_user()} terminal {os.getpid()}", os.getpid()), settings
    )
    folder, removed = _here()
    caller = commands.Caller(
        session,
        display,
        _write,
        folder,
        terminal=True,
        piped=not sys.stdout.isatty(),
        color=uses_color(settings, sys.stdout),
        ask=_ask if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty() else None,
        folder_removed=removed,
    )
    work = asyncio.ensure_future(args.run(args, caller))
    interrupts = _Interrupts(work)
    try:
        with interrupts.taken():
            try:
                await work
            finally:
                await background.wait_until_idle(_LATE)
    except asyncio.CancelledError:
        if interrupts.end_at_once:  # a `finally` that waits has put this in place of it
            raise KeyboardInterrupt from None
        return _INTERRUPTED
    except CommandFailed as error:
        return error.code  # the command has already written its own message
    except CiaoError as error:
        return _fail(error, settings)
    finally:
        display.close()
        await session.close()
    return 0


def _fail(error: CiaoError, settings: Settings | None) -> int:
    """Show an error and return its exit code."""
    from ciao_kernel.config import Settings
    from ciao_kernel.display.terminal import show_error
    from ciao_kernel.errors import UsageError

    show_error(error, settings or Settings())
    return _USAGE if isinstance(error, UsageError) else _FAILED


def _here() -> tuple[Path, bool]:
    """Return the working directory, and whether it was removed: then it is the home folder.

    Commands that need no working directory can then still run.
    """
    try:
        return Path.cwd(), False
    except FileNotFoundError:
        from ciao_kernel.home_folder import home

        return home(), True


class _Interrupts:
    """Lets the first Ctrl-C or SIGTERM stop the job, and the second end this process at once.

    The handlers are plain ones, because the loop's handlers would wait while a pipe that nobody
    reads blocks the loop. The job's supervisor detects the end of this process, and ends the
    replicas.
    """

    def __init__(self, work: asyncio.Future[Any]) -> None:
        self._work = work
        self._asked = False
        self.end_at_once = False
        """Whether there was a second one."""

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Handle interrupts during the body."""
        old = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as in `ciao run FILE.py &`
                old[number] = signal.signal(number, self._interrupt)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def _interrupt(self, *_: object) -> None:
        if self._asked:
            self.end_at_once = True
            raise KeyboardInterrupt
        self._asked = True
        self._work.get_loop().call_soon_threadsafe(self._work.cancel)


async def _ask(question: str) -> str:
    """Ask the person at the terminal; Ctrl-C cancels the wait, Ctrl-D is an empty answer."""
    from ciao_kernel.commands.terminal_line import read_line

    _write(question)
    return (await read_line()).strip()


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _prepare_streams() -> None:
    """Prevent errors from closed streams and from characters that a stream cannot encode."""
    sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(os.devnull, "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Discard the buffered output, which Python would write at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complete() -> None:
    """Answer the shell's Tab (``ciao --help`` shows the line that enables it in the shell)."""
    import argcomplete

    from ciao_kernel import commands, log
    from ciao_kernel.commands.verb_table import VERBS

    log.start()  # otherwise warnings would appear in the user's command line
    words = os.environ.get("COMP_LINE", "").split()
    verb = next((word for word in words[1:] if word in VERBS), None)
    argcomplete.autocomplete(commands.parser(verb=verb), always_complete_options=False)


if __name__ == "__main__":
    sys.exit(main())
