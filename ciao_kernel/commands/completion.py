"""What Tab offers in a shell, by argcomplete. Nothing here may raise: Tab would print it.

A completer takes what is typed so far and the arguments before it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ciao_kernel.model import Job, Status

Completer = Callable[..., Iterable[str]]


def by(completer: Completer, action: argparse.Action) -> argparse.Action:
    """Let a completer answer for an argument."""
    action.completer = completer  # type: ignore[attr-defined]
    return action


def jobs(prefix: str, **_: Any) -> list[str]:
    """Names of all jobs."""
    return [job.name for job, _ in _jobs() if job.name.startswith(prefix)]


def replicas(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Roles and replicas of the job that is named."""
    names: dict[str, None] = {}
    for job, _status in _jobs():
        if job.name == getattr(parsed_args, "name", None):
            names = dict.fromkeys([*(one.role for one in job.replicas), *map(str, job.replicas)])
    return [name for name in names if name.startswith(prefix)]


def files(*endings: str) -> Completer:
    """Files with one of some endings, and folders."""
    from argcomplete.completers import FilesCompleter

    completer: Completer = FilesCompleter(endings)
    return completer


def settings(prefix: str, **_: Any) -> list[str]:
    """Names of settings with their ``=``; behind it, nothing."""
    from ciao_kernel.config import Settings

    return [f"{name}=" for name, *_ in Settings().rows() if name.startswith(prefix)]


def directives(prefix: str, **_: Any) -> list[str]:
    """Names of directives."""
    from ciao_kernel.registry import Registry

    return [entry.name for entry in Registry().table.entries if entry.name.startswith(prefix)]


def value(name: str, others: Callable[[argparse.Namespace], dict[str, list[str]]]) -> Completer:
    """Values of a directive, the same as in the header of a cell.

    Args:
        name: The directive.
        others: Returns the directives that stand on the command line already.
    """

    def complete(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        from ciao_kernel.magics.complete import complete as in_header
        from ciao_kernel.registry import Registry

        known = {key: texts for key, texts in others(parsed_args).items() if key != name}
        lines = [f"%{key}={text}" for key, texts in known.items() for text in texts]
        text = "\n".join([*lines, f"%{name}={prefix}"])
        found = in_header(text, len(text), Registry().table, Path.cwd())
        return list(found.matches) if found else []

    return complete


def _jobs() -> list[tuple[Job, Status]]:
    from ciao_kernel.config import survey
    from ciao_kernel.model import Owner
    from ciao_kernel.registry import Registry
    from ciao_kernel.session import Session

    settings, _ = survey()
    return asyncio.run(Session(Registry(), Owner(""), settings).jobs())
