"""``ciao cp NAME/worker-0:PATH .``: copy files from a replica, or to it."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.shared_arguments import add_where, named_replica, where
from ciao_kernel.errors import UsageError
from ciao_kernel.user_path import expanded


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the two paths."""
    verb.epilog = (
        "One of the two is NAME/REPLICA:PATH, or NAME:PATH if the job has only one replica. PATH "
        "is relative to the folder of the program, or absolute; * and ? work, and a dot is all "
        "that is in the folder. Of a job with %warm that is the folder of its newest run. PATH is "
        "copied while the replica runs. On a cluster it requires the right to create and get "
        "pods/exec, and Python in the image."
    )
    for name, text in (("source", "what is copied"), ("target", "where it goes")):
        completion.by(completion.members, verb.add_argument(name, metavar=name.upper(), help=text))
    add_where(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Copy, and say what was copied.

    Raises:
        BackendError: Not all files could be copied; those that could are there.
    """
    from ciao_kernel.session import copying
    from ciao_kernel.session.copy_target import folder
    from ciao_kernel.session.warm.found_runs import find_run

    source, target = _remote(args.source), _remote(args.target)
    if bool(source) == bool(target):
        raise UsageError(
            "one of the two paths is in a replica.", "For example: cp NAME/worker-0:log.csv ."
        )
    (name, path) = source or target or ("", "")
    job_name, slash, member = name.partition("/")
    backend, job, _ = await caller.session.find(job_name, where(args))
    replica = named_replica(job, member, slash)
    if not path.startswith("/"):  # only then the log is needed, which tells the run's folder
        job = await find_run(backend, job)
    settings = caller.session.settings
    if source:
        place = folder(caller.folder_of(args.target), args.target)
        done = await copying.take(backend, job, replica, path, place, settings)
    else:
        place = caller.folder_of(args.source) / expanded(args.source)
        done = await copying.give(backend, job, replica, place, path, settings)
    caller.write(f"copied {done.text}\n")
    done.check()


def _remote(text: str) -> tuple[str, str] | None:
    """Return replica and path of ``NAME/worker-0:PATH``; None for a path of this machine."""
    name, colon, path = text.partition(":")
    local = not colon or name.startswith((".", "/", "~")) or name.count("/") > 1
    return None if local else (name, path)
