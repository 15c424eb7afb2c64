"""Completion on Tab in a shell, by argcomplete. No error may leave it: Tab would print the error.

A completer takes the typed text and the arguments before it. The user waits for Tab: jobs of a
cluster that does not answer within about a second are not offered.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel import log

if TYPE_CHECKING:
    from ciao_kernel.config import Settings
    from ciao_kernel.model import Job
    from ciao_kernel.plugins import Backend

_log = logging.getLogger(__name__)

Completer = Callable[..., Iterable[str]]

_PATIENCE = 1.5
"""Seconds that Tab waits for clusters."""
_HERE = 5.0
"""Seconds that Tab waits for imports and the jobs of this machine, which are always offered."""


def by(completer: Completer, action: argparse.Action) -> argparse.Action:
    """Set the completer of an argument."""
    action.completer = completer  # type: ignore[attr-defined]
    return action


def jobs(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return names of all jobs."""
    return [job.name for job in _jobs(parsed_args) if job.name.startswith(prefix)]


def members(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return names of jobs; after a slash, names of the job's replicas."""
    return _members(prefix, _jobs(parsed_args))


def _members(prefix: str, found: list[Job]) -> list[str]:
    name, slash, _replica = prefix.partition("/")
    if not slash:
        return [job.name for job in found if job.name.startswith(prefix)]
    names = [f"{name}/{one}" for job in found if job.name == name for one in job.replicas]
    return [one for one in names if one.startswith(prefix)]


def processes(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return the same, and behind a replica its processes, if torchrun starts several."""
    from ciao_kernel.magics import stored_header

    jobs = _jobs(parsed_args)
    found = _members(prefix, jobs)
    name, _slash, member = prefix.partition("/")
    replica = member.partition(".")[0]
    for job in jobs:
        if job.name == name and replica in map(str, job.replicas):
            count = stored_header.text(job.header, "nprocPerNode") or ""
            # The header may be foreign.
            ranks = range(int(count)) if re.fullmatch("[0-9]{1,3}", count) else range(0)
            names = [f"{name}/{replica}.{rank}" for rank in ranks if len(ranks) > 1]
            found += [one for one in names if one.startswith(prefix)]
    return found


def replicas(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return roles and replicas of the named job."""
    names: dict[str, None] = {}
    for job in _jobs(parsed_args):
        if job.name == getattr(parsed_args, "name", None):
            names = dict.fromkeys([*(one.role for one in job.replicas), *map(str, job.replicas)])
    return [name for name in names if name.startswith(prefix)]


def namespaces(prefix: str, **_: Any) -> list[str]:
    """Return the namespaces of the kubeconfig and of earlier jobs, without a request."""
    names = {str(one.get("namespace") or "") for one in _contexts().values()}
    with log.ignored(_log, "completion"):
        from ciao_kernel.config import load_with_errors

        names |= {path.name for path in (load_with_errors()[0].own_storage / "cluster").iterdir()}
    return sorted(name for name in names if name and name.startswith(prefix))


def contexts(prefix: str, **_: Any) -> list[str]:
    """Return the contexts of the kubeconfig."""
    return sorted(name for name in _contexts() if name.startswith(prefix))


def backends(prefix: str, **_: Any) -> list[str]:
    """Return names of backends."""
    from ciao_kernel.session.plugin_registry import Registry

    return [name for name in Registry().names("backends") if name.startswith(prefix)]


def files(*endings: str) -> Completer:
    """Return a completer for folders, and for files with one of these endings."""

    def complete(prefix: str, **_: Any) -> list[str]:
        from ciao_kernel.magics.help.path_completion import paths

        return [one for one in paths(prefix, Path.cwd()) if one.endswith(("/", *endings))]

    return complete


def settings(prefix: str, **_: Any) -> list[str]:
    """Return names of settings with ``=``; values are not completed."""
    from ciao_kernel.config import Settings

    return [f"{name}=" for name, *_ in Settings().rows() if name.startswith(prefix)]


def directives(prefix: str, **_: Any) -> list[str]:
    """Return names of directives."""
    from ciao_kernel.session.plugin_registry import Registry

    return [entry.name for entry in Registry().table.entries if entry.name.startswith(prefix)]


def value(name: str, others: Callable[[argparse.Namespace], dict[str, list[str]]]) -> Completer:
    """Return a completer for the values of a directive, the same as in the header of a cell.

    Args:
        name: The directive.
        others: Returns the directives that are already on the command line.
    """

    def complete(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        from ciao_kernel.delivery.input import secret_files
        from ciao_kernel.magics.help.completion import complete as in_header
        from ciao_kernel.session.plugin_registry import Registry

        known = {key: texts for key, texts in others(parsed_args).items() if key != name}
        lines = [f"%{key}={text}" for key, texts in known.items() for text in texts]
        text = "\n".join([*lines, f"%{name}={prefix}"])
        table = Registry().table
        found = in_header(text, len(text), table, Path.cwd(), secret=secret_files.by_name)
        return list(found.matches) if found else []

    return complete


def _jobs(args: argparse.Namespace) -> list[Job]:
    """Return the jobs of this machine, and those of clusters that answer soon enough."""
    known: Callable[[], list[Job]] | None = getattr(args, "known_jobs", None)
    return known() if known is not None else JobSearch(args).found(_HERE, _PATIENCE)


class JobSearch:
    """Looks for jobs in a thread of its own.

    A request that hangs in a name server or a credential plug-in cannot be cancelled: the thread is
    abandoned then.

    Args:
        args: Arguments before the name: the context and the namespace.
        settings: The settings; None reads them.
    """

    def __init__(self, args: argparse.Namespace, settings: Settings | None = None) -> None:
        self._found: list[Job] = []
        self._here = threading.Event()
        work = lambda: asyncio.run(_ask(args, settings, self._found, self._here))  # noqa: E731
        self._thread = threading.Thread(target=work, name="ciao-jobs", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Return whether all backends have answered."""
        return not self._thread.is_alive()

    def found(self, here: float, clusters: float) -> list[Job]:
        """Return the jobs that were found so far.

        Args:
            here: Maximum seconds to wait for the jobs of this machine.
            clusters: Maximum seconds to wait for all jobs then.
        """
        self._here.wait(here)
        self._thread.join(clusters)
        return list(self._found)


async def _ask(
    args: argparse.Namespace, settings: Settings | None, found: list[Job], here: threading.Event
) -> None:
    try:
        with log.ignored(_log, "completion"):
            await _collect(args, settings, found, here)
    finally:
        here.set()


async def _collect(
    args: argparse.Namespace, settings: Settings | None, found: list[Job], here: threading.Event
) -> None:
    from ciao_kernel.config import load_with_errors
    from ciao_kernel.errors import Incomplete
    from ciao_kernel.model import Owner
    from ciao_kernel.model.queries import Where
    from ciao_kernel.session.plugin_registry import Registry
    from ciao_kernel.session.session import Session

    chosen = replace(settings or load_with_errors()[0], request_patience=0.0)
    session = Session(Registry(), Owner(""), chosen)
    place = Where(getattr(args, "context", ""), getattr(args, "namespace", ""))

    async def ask(backend: Backend) -> None:
        with log.ignored(_log, "completion"):
            try:
                listed = await backend.jobs(place)
            except Incomplete as error:
                listed = list(error.found)
            found.extend(job for job, _ in listed)

    # First and alone: what the others need is imported in a quarter of a second.
    await ask(session.backend("local"))
    here.set()
    for backend in reversed(session.available()):
        if backend.name != "local":
            await ask(backend)
    await session.close()


def _contexts() -> dict[str, dict[str, Any]]:
    """Return the contexts of the kubeconfig's files, by name."""
    found: dict[str, dict[str, Any]] = {}
    with log.ignored(_log, "completion"):
        import yaml

        from ciao_kernel.kube import kubeconfig

        for file in kubeconfig.files():
            for one in yaml.safe_load(file.read_bytes()).get("contexts") or ():
                found.setdefault(str(one["name"]), one.get("context") or {})
    return found
