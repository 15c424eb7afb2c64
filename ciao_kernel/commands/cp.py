"""``ciao cp NAME/worker-0:PATH .``: copy files from a replica, or to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.shared_arguments import add_where, named_replica, where
from ciao_kernel.errors import UsageError


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the two paths."""
    verb.epilog = (
        "One of the two is NAME/REPLICA:PATH, or NAME:PATH if the job has only one replica. PATH "
        "is relative to the folder of the program, or absolute; * and ? work. It is copied while "
        "the replica runs. On a cluster it requires the right to create and get pods/exec, and "
        "Python in the image."
    )
    for name, text in (("source", "what is copied"), ("target", "where it goes")):
        completion.by(completion.members, verb.add_argument(name, metavar=name.upper(), help=text))
    add_where(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Copy, and say what was copied."""
    from ciao_kernel.session import copying

    source, target = _remote(args.source), _remote(args.target)
    if bool(source) == bool(target):
        raise UsageError(
            "one of the two paths is in a replica.", "For example: cp NAME/worker-0:log.csv ."
        )
    (name, path) = source or target or ("", "")
    job_name, slash, member = name.partition("/")
    backend, job, _ = await caller.session.find(job_name, where(args))
    replica = named_replica(job, member, slash)
    settings = caller.session.settings
    if source:
        place = copying.folder(caller.folder, args.target)
        done = await copying.take(backend, job, replica, path, place, settings)
    else:
        place = caller.folder / Path(args.source).expanduser()
        done = await copying.give(backend, job, replica, place, path, settings)
    caller.write(f"copied {done}\n")


def _remote(text: str) -> tuple[str, str] | None:
    """Return replica and path of ``NAME/worker-0:PATH``; None for a path of this machine."""
    name, colon, path = text.partition(":")
    local = not colon or name.startswith((".", "/", "~")) or name.count("/") > 1
    return None if local else (name, path)
