"""``ciao logs NAME``: what the replicas wrote, each line behind its replica."""

from __future__ import annotations

import argparse

from ciao_kernel.commands import Face
from ciao_kernel.commands.attach import chosen
from ciao_kernel.display.lines import Prefixer
from ciao_kernel.errors import UsageError
from ciao_kernel.model import JobResult

HELP = "show what the replicas of a job wrote; -f follows it to its end"


def arguments(verb: argparse.ArgumentParser) -> None:
    """The job, which replicas, how much, and ``-f``."""
    verb.add_argument("name", help="the job")
    verb.add_argument("--replica", action="append", default=[], help="only this role or replica")
    verb.add_argument("--tail", type=int, metavar="N", help="only the last N lines of each replica")
    verb.add_argument("-f", "--follow", action="store_true", help="go on until the job ends")


async def run(args: argparse.Namespace, face: Face) -> JobResult | None:
    """Write the logs replica by replica, or follow them."""
    if args.tail is not None and args.tail < 0:
        raise UsageError(f"--tail cannot be {args.tail}.", "Give a number of lines from 0 up.")
    backend, job, _ = await face.session.find(args.name)
    wanted = chosen(args.replica, job)
    if args.follow:
        return await face.session.attach(args.name, face.display, tuple(args.replica))
    prefixer = Prefixer(color=face.session.settings.color == "always", limit=10**9)
    for replica in wanted:
        lines = (await backend.log(job, replica)).removesuffix(b"\n").split(b"\n")
        if args.tail is not None:
            lines = lines[len(lines) - args.tail :] if args.tail else []
        if lines and lines != [b""]:
            face.write(prefixer.format(replica, b"\n".join(lines)))
    return None
