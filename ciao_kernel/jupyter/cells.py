"""Handling of cells, shared by the kernel and the IPython extension.

A cell therefore means the same in the ciao kernel and in any other IPython after
``%load_ext ciao_kernel``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel import __version__, log
from ciao_kernel.errors import CiaoError, EnvironmentFault, SettingError
from ciao_kernel.jupyter import questions, shutdown
from ciao_kernel.magics import scanned_cell
from ciao_kernel.magics.scanned_cell import ScannedCell
from ciao_kernel.session.plugin_registry import Registry

if TYPE_CHECKING:
    from ciao_kernel.api import JobHandle, JobPreview
    from ciao_kernel.config import Settings
    from ciao_kernel.model import JobResult
    from ciao_kernel.plugins import Console, Display
    from ciao_kernel.session.left_running import LeftRunning
    from ciao_kernel.session.session import Session
    from ciao_kernel.session.warm.pool import WarmPool

_log = logging.getLogger(__name__)

_COMMAND = re.compile(r"\s*%ciao(?:[ \t]++([^\r\n]*+))?\s*+")


@functools.cache
def registry() -> Registry:
    """Return the plug-in registry of this process."""
    return Registry()


def scan_job(code: str) -> ScannedCell | None:
    """Return the directives of a job cell, None for any other cell."""
    return scanned_cell.scan_job(code, registry().table)


def command(code: str) -> str | None:
    """Return the arguments of a cell that is a single ``%ciao …`` line, else None.

    ``%worker?`` is the question of an IPython user, and means ``%ciao magics worker``.
    """
    if match := _COMMAND.fullmatch(code):
        return match[1] or ""
    return questions.of_directive(code)


def split(arguments: str) -> list[str]:
    """Split the arguments of ``%ciao`` into words."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def session(words: list[str] | None = None) -> Session:
    """Return the session of this process; ``%ciao config`` thus applies to all cells.

    Args:
        words: The command to run, if any. Some commands work even with an invalid setting.

    Raises:
        SettingError: A setting is invalid. The next call reads the settings again.
    """
    from ciao_kernel import config
    from ciao_kernel.commands.verb_table import VERBS

    try:
        return _session()
    except SettingError:
        verb = VERBS.get(words[0]) if words else None
        if verb is None or verb.needs_settings:
            raise
        return _new_session(config.load_with_errors()[0])


@functools.cache
def _session() -> Session:
    from ciao_kernel import config

    return _new_session(config.load())


def _new_session(settings: Settings) -> Session:
    from ciao_kernel.api import client
    from ciao_kernel.jupyter.server_proxy import kernel_reach
    from ciao_kernel.model import Owner
    from ciao_kernel.session.session import Session

    log.write_to(settings.own_storage)
    _log.info("ciao %s, Python %s, %s", __version__, platform.python_version(), _label())
    # In a terminal no shutdown follows an interrupt, and the session waits for the stop.
    lifetime = shutdown.lifetime if _in_a_kernel() else None
    owner = Owner(_label(), os.getpid())
    new = Session(registry(), owner, settings, lifetime, _warm_pool(), kernel_reach)
    client.use_host(client.Host(lambda: new.settings, hide_frames))
    return new


@functools.cache
def _warm_pool() -> WarmPool:
    from ciao_kernel.session.warm.pool import WarmPool

    return WarmPool()


def _in_a_kernel() -> bool:
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _label() -> str:
    from ciao_kernel.session.owner import current_user

    return f"{current_user()} kernel {os.getpid()}"


def hide_frames(error: CiaoError) -> None:
    """Let IPython show an error as a message with a hint, without the frames of this package."""
    from ciao_kernel.display.errors import colored, uncolored
    from ciao_kernel.display.terminal import uses_color

    wanted = colors_errors() if _in_a_kernel() else uses_color(_valid_settings(), sys.stdout)
    lines = colored if wanted else uncolored
    # IPython calls this method, if an exception has it, instead of formatting a traceback.
    error.__dict__["_render_traceback_"] = functools.partial(lines, error)


def colors_errors() -> bool:
    """Return whether errors in a notebook, which can always show colours, have them."""
    return _valid_settings().color != "never"


def _valid_settings() -> Settings:
    """Return the settings; a wrong one, which is perhaps the error to show, has its default."""
    from ciao_kernel import config

    if _session.cache_info().currsize:
        return _session().settings
    return config.load_with_errors()[0]


_cached: list[tuple[JobResult, JobHandle]] = []
"""The result that ``_job`` was made of, and ``_job``."""


def last_job(session: Session) -> JobHandle | JobPreview | None:
    """Return the value of ``_job``: the session's newest job or dry run, None if there is none."""
    from ciao_kernel.api import client
    from ciao_kernel.api.job_handle import JobHandle
    from ciao_kernel.api.preview import JobPreview

    if session.preview is not None:
        return JobPreview(*session.preview)
    last = session.last
    if last is None:
        return None
    if not _cached or _cached[0][0] is not last:  # the same object continues its wait
        handle = JobHandle(last.job, last.status, client.default(), last.error)
        _cached[:] = [(last, handle)]
    return _cached[0][1]


@functools.cache
def _left_running() -> LeftRunning:
    from ciao_kernel.session.left_running import LeftRunning

    return LeftRunning(_label())


async def close() -> None:
    """End idle warm replicas, TensorBoard and connections of this process: its kernel ends."""
    await _warm_pool().close()
    if _session.cache_info().currsize:
        await _session().board.close()
    await registry().close()


def working_folder() -> Path:
    """Return the kernel's working directory, which Jupyter sets to the notebook's folder.

    Raises:
        EnvironmentFault: The folder was removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise EnvironmentFault(
            "the folder of this notebook no longer exists.", "Change to an existing folder: %cd ~"
        ) from None


async def run_job(
    cell: ScannedCell,
    session: Session,
    display: Display,
    variables: Mapping[str, Any],
    console: Console | None = None,
) -> JobResult | None:
    """Run a job cell; the first cell also reports jobs that an earlier kernel left running.

    Args:
        cell: The cell.
        session: Runs the job.
        display: Shows the events.
        variables: Variables of the plain cells.
        console: Where breakpoint() opens a prompt; None if the front end has no input.

    Raises:
        CiaoError: Same errors as :meth:`Session.run`.
    """
    async with _left_running().reported(session, display):
        return await session.run(
            cell, display, working_folder(), variables=variables, console=console
        )


async def run_command(
    words: list[str],
    session: Session,
    display: Display,
    write: Callable[[str], Any],
    console: Console | None = None,
) -> JobResult | None:
    """Run ``%ciao VERB …`` and return the job that the command followed, if any.

    Raises:
        CiaoError: The words are invalid, or the command failed.
    """
    from ciao_kernel.commands import Caller, execute

    async with reported_beside(words, _left_running(), session, display):
        return await execute(
            words, Caller(session, display, write, working_folder(), console=console)
        )


def reported_beside(
    words: list[str], left: LeftRunning, session: Session, display: Display
) -> contextlib.AbstractAsyncContextManager[None]:
    """Report jobs of earlier kernels beside a command that asks backends.

    Args:
        words: The command. One that lists all jobs leaves nothing to report.
        left: Reports jobs that are left running.
        session: Session of the cell.
        display: Receives the report.
    """
    from ciao_kernel.commands.verb_table import VERBS

    verb = VERBS.get(words[0]) if words else None
    if verb and verb.lists_all_jobs:
        left.are_listed()
    if verb and verb.reports_left_running:
        return left.reported(session, display, words)
    return contextlib.nullcontext()
