"""What the kernel and the IPython extension ask about a cell.

One place for both, so that a cell means the same in the ciao kernel and in any other IPython
after ``%load_ext ciao_kernel``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import shlex
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import EnvironmentFault, SettingError
from ciao_kernel.magics import parse
from ciao_kernel.registry import Registry

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.earlier import Earlier
    from ciao_kernel.magics.complete import Completion
    from ciao_kernel.model import JobResult
    from ciao_kernel.plugins import Display
    from ciao_kernel.session import Session


_COMMAND = re.compile(r"\s*%ciao(?:[ \t]++([^\r\n]*+))?\s*+")
_UNDER_CURSOR = re.compile(r"%%?ciao\b")
_IPYTHON_HELPS = contextlib.suppress(Exception)
"""Whatever fails while the user writes, the key that was pressed has IPython's answer."""


class Lifetime:
    """Tells a stop from a shutdown (:class:`ciao_kernel.stopping.Lifetime`).

    jupyter_client begins every shutdown and restart with an interrupt; the shutdown request
    follows 3 to 120 ms later (measured, 8.10). Under a remote launcher none may ever come: the
    pod is deleted, which the kernel hears as SIGTERM, 5 to 100 ms after the interrupt (measured,
    Enterprise Gateway 3.3). Or it does not, and is killed 2 s later. So the wait is longer there.
    """

    _REMOTE_WAIT, _REMOTE_WAIT_WITHOUT_SIGNALS = 1.5, 3.0
    _INITS = frozenset({"tini", "dumb-init", "docker-init", "catatonit"})
    """First processes of containers that pass signals on. A shell does not."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._holds = 0

    def end(self) -> None:
        """The kernel was asked to shut down. Called from any thread."""
        self._ending.set()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let :meth:`settled` wait for what is done within. Called from any thread."""
        with self._lock:
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1

    async def settled(self, within: float) -> None:
        """Wait, so long at most, until nothing is :meth:`held`."""
        until = time.monotonic() + within
        while self._holds and time.monotonic() < until:
            await asyncio.sleep(0.02)

    async def ends(self, within: float, known: Callable[[], Awaitable[bool]]) -> bool:
        """Wait so long for a shutdown; then ask whether one is known of."""
        if "RESPONSE_ADDRESS" in os.environ:
            heard = _first_process() in self._INITS
            remote = self._REMOTE_WAIT if heard else self._REMOTE_WAIT_WITHOUT_SIGNALS
            within = max(within, remote)
        waited, last = 0.0, time.monotonic()
        while not self._ending.is_set() and waited < within:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            gap = now - last
            # A process that was held up, such as frozen, has heard nothing meanwhile.
            waited, last = waited + (gap if gap < 0.5 else 0.02), now
        if self._ending.is_set():
            return True
        with contextlib.suppress(Exception):  # what nobody can tell keeps no job from its stop
            if await known():
                return True
        return self._ending.is_set()


def _first_process() -> str:
    """The name of this container's process 1."""
    try:
        return Path("/proc/1/comm").read_text().strip()
    except OSError:
        return ""


lifetime = Lifetime()
"""This process's; the kernel ends it."""

LAST_WORK = 5.0
"""Seconds that a shutdown waits at most for deletions that nobody else would do; jupyter_client
kills a kernel that takes longer."""


@functools.cache
def registry() -> Registry:
    """The plug-ins of this process."""
    return Registry()


def is_job(code: str) -> bool:
    """Whether a cell is a job."""
    return parse.is_job(code, registry().table)


def command(code: str) -> list[str] | None:
    """The words of a cell that is one ``%ciao …`` line, else None."""
    match = _COMMAND.fullmatch(code)
    if match is None:
        return None
    try:
        return shlex.split(match[1] or "")
    except ValueError:
        return (match[1] or "").split()


def session(words: list[str] | None = None) -> Session:
    """The session of this process, so that ``%ciao config`` changes one thing for all cells.

    Args:
        words: The command that is to run, if any. Some help while a setting is wrong.

    Raises:
        SettingError: A setting is wrong. The next call reads the settings again.
    """
    from ciao_kernel import config
    from ciao_kernel.commands import WITHOUT_SETTINGS

    try:
        return _session()
    except SettingError:
        if not words or words[0] not in WITHOUT_SETTINGS:
            raise
        return _new_session(config.survey()[0])


@functools.cache
def _session() -> Session:
    from ciao_kernel import config

    return _new_session(config.load())


def _new_session(settings: Settings) -> Session:
    from ciao_kernel.model import Owner
    from ciao_kernel.session import Session

    # A terminal has nobody who shuts it down behind an interrupt, and waits for a stop.
    ends = lifetime if _in_a_kernel() else None
    return Session(registry(), Owner(_label(), os.getpid()), settings, ends)


def _in_a_kernel() -> bool:
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _label() -> str:
    from ciao_kernel.owner import me

    return f"{me()} kernel {os.getpid()}"


@functools.cache
def _earlier() -> Earlier:
    from ciao_kernel.earlier import Earlier

    return Earlier(_label())


async def close() -> None:
    """Close what this process holds open; its kernel ends."""
    await registry().close()


def here() -> Path:
    """Where the user works: the kernel's working directory, which Jupyter sets to the notebook's.

    Raises:
        EnvironmentFault: Someone has removed it.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise EnvironmentFault(
            "the folder of this notebook is gone.", "Change to one that exists: %cd ~"
        ) from None


async def run_job(
    code: str, session: Session, display: Display, variables: Mapping[str, Any]
) -> JobResult | None:
    """Run a cell that is a job; the first one says what runs from before.

    Args:
        code: The cell.
        session: Runs it.
        display: Where events go.
        variables: Those of the plain cells.

    Raises:
        CiaoError: As :meth:`Session.run`.
    """
    async with _earlier().told(session, display):
        return await session.run(code, display, here(), variables=variables)


async def run_command(
    words: list[str], session: Session, display: Display, write: Callable[[str], Any]
) -> JobResult | None:
    """Run ``%ciao VERB …`` and return the job that it followed, if any.

    Raises:
        CiaoError: The words are wrong, or what they ask for failed.
    """
    from ciao_kernel.commands import Face, execute

    async with _earlier().told(session, display, words):
        return await execute(words, Face(session, display, write, here()))


def complete(code: str, cursor: int, variables: Mapping[str, Any]) -> Completion | None:
    """Complete in a header; None where IPython knows better.

    Args:
        code: The cell.
        cursor: Offset of the cursor.
        variables: The user's, for ``%input``.
    """
    if "%" not in code:
        return None
    from ciao_kernel import inputs, private
    from ciao_kernel.magics import complete as completing

    with _IPYTHON_HELPS:
        # IPython's own lists of cells and results would travel too.
        names = (name for name in inputs.travelling(variables) if name not in ("In", "Out"))
        return completing.complete(
            code, cursor, registry().table, Path.cwd(), variables=names, secret=private.by_name
        )
    return None


def explain(code: str, cursor: int) -> str | None:
    """Help for what the cursor is on; None where IPython knows better."""
    if "%" not in code:
        return None
    from ciao_kernel.magics import explain as explaining

    with _IPYTHON_HELPS:
        start = max(code.rfind("\n", 0, cursor), code.rfind("\r", 0, cursor)) + 1
        if _UNDER_CURSOR.match(code, start):
            from ciao_kernel.commands import help_text

            return help_text()
        return explaining.explain(code, cursor, registry().table)
    return None


def is_complete(code: str) -> dict[str, Any] | str:
    """An answer for a header, or the code to ask IPython about."""
    with _IPYTHON_HELPS:
        if "%" in code and is_job(code):
            from ciao_kernel.magics import completeness

            return completeness.answer(code, registry().table)
    return code
