"""``ciao magics``: the table of directives."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ciao_kernel.commands import Caller, completion
from ciao_kernel.commands.shared_arguments import add_output
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.table import Directive


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the name of a directive, and ``--output``."""
    name = verb.add_argument("name", nargs="?", help="a directive")
    completion.by(completion.directives, name)
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Write the table, or the help of one directive."""
    from ciao_kernel.magics.help import directive_help

    table = caller.session.registry.table
    if args.name is None:
        if args.output == "json":
            records = [_record(entry) for entry in table.entries]
            caller.write(json.dumps(records, indent=2) + "\n")
        else:
            caller.write(directive_help.overview(table) + "\n")
        return
    name = args.name.removeprefix("%").partition("=")[0]
    entry = table.find(name)
    if entry is None:
        near = table.nearest(name)
        hint = f"Did you mean {near}? " if near else ""
        raise UsageError(f"there is no directive {name}.", f"{hint}`ciao magics` lists all.")
    if args.output == "json":
        caller.write(json.dumps(_record(entry), indent=2) + "\n")
    else:
        caller.write((directive_help.explain(f"%{entry.name}", 1, table) or "") + "\n")


def _record(entry: Directive) -> dict[str, Any]:
    return {
        "name": entry.name,
        "belongs_to": entry.scope.value,
        "expected": entry.kind.expected,
        "default": entry.default or None,
        "help": entry.help,
        "example": entry.example,
    }
