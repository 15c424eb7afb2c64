"""`python -m tests.cluster COMMAND`: raises and lowers the tests' Kubernetes, and breaks it."""

import argparse
import os
import sys
import time

from tests.cluster import during, ground
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.extras import EXTRAS, USUAL, of_slices
from tests.cluster.layout import NAMES, layout
from tests.cluster.status import print_status, print_use
from tests.suites.slices import SLICES

_PART = {
    "start": "start a part that does not run",
    "stop": "ask a part to end, and wait until it has",
    "kill": "kill a part",
    "freeze": "let a part stand still: connections stay, nobody answers",
    "thaw": "let it go on",
}


def main(argv: list[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--name", default="main", choices=NAMES)
    verbs = parser.add_subparsers(dest="verb", required=True)
    raising = verbs.add_parser("up", help="raise it, or start again what does not run")
    building = verbs.add_parser("build", help="only fill the cache; no error where none can be")
    for verb in (raising, building):
        text = f"what only some tests need: {', '.join(EXTRAS)}; or all usual ones: all"
        verb.add_argument("extras", nargs="*", metavar="EXTRA", help=text)
    text = "slices of the tests, whose own extras are built too; all means each"
    building.add_argument("--slices", nargs="*", default=[], metavar="SLICE", help=text)
    verbs.add_parser("down", help="lower it and remove all that it left but the cache")
    verbs.add_parser("status", help="tell how each part is and where its log lies")
    shell = verbs.add_parser("exec", help="run a program on the node")
    shell.add_argument("argv", nargs=argparse.REMAINDER)
    while_up = verbs.add_parser("during", help="raise it, run a command, and lower it again")
    while_up.add_argument("argv", nargs=argparse.REMAINDER)
    for verb, text in _PART.items():
        verbs.add_parser(verb, help=text).add_argument("part")
    options = parser.parse_args(argv)
    cluster = Cluster(layout(options.name))
    extras = [name for name in getattr(options, "extras", ()) if name != "all"]
    if "all" in getattr(options, "extras", ()):
        extras = [*USUAL, *extras]
    chosen = getattr(options, "slices", ())
    extras += of_slices(SLICES if "all" in chosen else chosen)
    began = time.monotonic()
    try:
        if options.verb == "up":
            cluster.up(extras)
            print_use(cluster, time.monotonic() - began)
        elif options.verb == "build":
            if (reason := ground.unfit()) and not os.environ.get("CI"):
                print(f"==> no cluster on this machine: {reason}; its tests will be left out")
            else:
                cluster.build(extras)
        elif options.verb == "down":
            cluster.down()
            print("==> the cluster is down")
        elif options.verb == "status":
            return print_status(cluster)
        elif options.verb == "during":
            return during.run(cluster, options.argv)
        elif options.verb == "exec":
            print(cluster.node.run(options.argv), end="")
        else:
            if options.part not in cluster.parts:
                raise ClusterError(
                    f"no part is named {options.part}", f"there are {', '.join(cluster.parts)}"
                )
            getattr(cluster, options.verb)(options.part)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
