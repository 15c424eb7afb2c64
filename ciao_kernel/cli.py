"""The command ``ciao``.

Exit codes: 0 success, 1 the job failed or the machine cannot run it, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line. The console script calls it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    try:
        return asyncio.run(_main(words))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe (head, less) has what it wanted. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


async def _main(words: list[str]) -> int:
    from ciao_kernel import commands, config
    from ciao_kernel.display.terminal import TerminalDisplay, show_error
    from ciao_kernel.errors import CiaoError, UsageError
    from ciao_kernel.model import Owner
    from ciao_kernel.registry import Registry
    from ciao_kernel.session import Session

    settings = config.Settings()
    try:
        settings = config.load()
        owner = Owner(f"{getpass.getuser()}@{socket.gethostname()}", os.getpid())
        session = Session(Registry(), owner, settings)
        quiet = "json" in words
        display = TerminalDisplay(settings, sys.stderr if quiet else sys.stdout)
        face = commands.Face(session, display, _write, Path.cwd(), terminal=True)
        work = asyncio.ensure_future(commands.execute(words, face))
        with _interruptible(work):
            await work
    except asyncio.CancelledError:
        return 130
    except CiaoError as error:
        show_error(error, settings)
        return 2 if isinstance(error, UsageError) else 1
    return 0


@contextlib.contextmanager
def _interruptible(work: "asyncio.Future[object]"):  # type: ignore[no-untyped-def]
    """Let the first Ctrl-C or SIGTERM stop the job; a second one is for the impatient."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _complete() -> None:
    """Answer the shell's Tab: `eval "$(register-python-argcomplete ciao)"` asks for it."""
    import argcomplete

    from ciao_kernel import commands

    argcomplete.autocomplete(commands.parser())


if __name__ == "__main__":
    sys.exit(main())
