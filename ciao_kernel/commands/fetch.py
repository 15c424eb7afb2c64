"""``ciao fetch NAME [PATH …]``: fetch files of a job's replicas now."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Caller
from ciao_kernel.commands.shared_arguments import add_member, chosen, take_replica, where
from ciao_kernel.errors import BackendError, UsageError
from ciao_kernel.magics.directives import outputs
from ciao_kernel.visible_text import visible


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the job, the paths and ``--replica``."""
    verb.epilog = (
        "The files go to the job's folder on this machine (_job.folder). A pod has its files as "
        "long as its program runs, and with %output a little longer (the setting fetchWait): then "
        "it requires the right to create and get pods/exec. Later, files of %output that went to "
        "the log or a registry can be had as long as the pod exists, and those in a bucket or on "
        "a claim as long as the job. "
        "Of a job with %warm they are those of its newest run, or of another one with --run: a pod "
        "keeps the folders of the last two, and its log the files that came by the log."
    )
    add_member(verb)
    verb.add_argument(
        "path",
        nargs="*",
        default=[],  # without it, argparse calls PATH required where NAME is missing
        metavar="PATH",
        help="files and folders beside the program; by default those of %%output, or output/",
    )
    verb.add_argument(
        "--run",
        dest="number",
        type=int,
        metavar="N",
        help="the files of one run of a job with %%warm; by default the newest one",
    )


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Fetch the files, and say what came.

    Raises:
        BackendError: Nothing could be fetched, or a path that was named matches no file.
    """
    from ciao_kernel.session import fetching
    from ciao_kernel.session.warm.found_runs import find_run

    take_replica(args)
    backend, job, _ = await caller.session.find(args.name, where(args))
    words = tuple(map(_path, args.path))
    replicas = chosen(args.replica, job)
    if job.on_cluster:
        settings = caller.session.settings
        fetched = await fetching.fetch(
            backend, job, replicas, words, settings, caller.display.show, args.number
        )
    else:
        run = await find_run(backend, job, args.number)
        fetched = fetching.found_here(run, words)
    caller.write("".join(f"{line}\n" for line in fetched.lines))
    if fetched.missing:
        raise BackendError(
            f"no file of {job.name} matches {', '.join(map(visible, fetched.missing))}.",
            "Paths are relative to the folder of the program; `model/*.pt` works too.",
        )


def _path(word: str) -> str:
    try:
        return outputs.path(word)
    except ValueError as error:
        raise UsageError(f"{word} cannot be fetched: expected {error}.") from None
