"""``ciao magics``: the table of directives."""

from __future__ import annotations

import argparse
import json

from ciao_kernel.commands import Face, add_output
from ciao_kernel.errors import UsageError

HELP = "list the directives, or explain one"


def arguments(verb: argparse.ArgumentParser) -> None:
    """One directive, and ``--output``."""
    verb.add_argument("name", nargs="?", help="a directive")
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Write the table, or the help of one directive."""
    from ciao_kernel.magics import explain

    table = face.session.registry.table
    if args.output == "json":
        records = [
            {"name": entry.name, "help": entry.help, "example": entry.example}
            for entry in table.entries
        ]
        face.write(json.dumps(records, indent=2) + "\n")
    elif args.name is None:
        face.write(explain.overview(table) + "\n")
    else:
        name = args.name.removeprefix("%")
        entry = table.find(name)
        if entry is None:
            near = table.nearest(name)
            hint = f"Did you mean {near}?" if near else "`ciao magics` lists all."
            raise UsageError(f"there is no directive {name}.", hint)
        face.write((explain.explain(f"%{entry.name}", 1, table) or "") + "\n")
