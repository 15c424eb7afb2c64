"""``ciao run FILE.py``: run a file as a job, as a cell would."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ciao_kernel import workspace
from ciao_kernel.commands import Face, add_output
from ciao_kernel.commands.describe import result_record
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.header import Style
from ciao_kernel.magics.kinds import Flag, quote
from ciao_kernel.magics.table import Table
from ciao_kernel.model import JobResult
from ciao_kernel.registry import Registry

HELP = "run a Python file as a job; its header stands in comments such as #%worker=2"


def arguments(verb: argparse.ArgumentParser) -> None:
    """Offer every directive as an option."""
    verb.add_argument("file", help="the program")
    verb.add_argument("-d", dest="detach_short", action="store_true", help="short for --detach")
    add_output(verb)
    for entry in _table().entries:
        if isinstance(entry.kind, Flag):
            verb.add_argument(
                _option(entry.name), dest=f"directive_{entry.name}", action="store_true", help=_help(entry.help)
            )
        else:
            verb.add_argument(
                _option(entry.name),
                dest=f"directive_{entry.name}",
                action="append",
                metavar="VALUE",
                help=_help(entry.help),
            )
    verb.add_argument("arguments", nargs="*", help="behind --: arguments of the program")


async def run(args: argparse.Namespace, face: Face) -> JobResult | None:
    """Run the file with its own folder as the place where modules and files are looked for."""
    path = (face.folder / Path(args.file).expanduser()).absolute()
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{args.file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{args.file} is not UTF-8 text.", "Save it as UTF-8.") from None
    result = await face.session.run(
        text,
        face.display,
        path.parent,
        style=Style.FILE,
        entry=workspace.entry_name(path),
        options=_options(args),
    )
    if result is not None and args.output == "json":
        face.write(json.dumps(result_record(result), indent=2) + "\n")
    return result


def _table() -> Table:
    return Registry().table


def _option(name: str) -> str:
    """``nprocPerNode`` as options are written: ``--nproc-per-node``."""
    return "--" + "".join(f"-{c.lower()}" if c.isupper() else c for c in name)


def _help(text: str) -> str:
    return text.replace("%", "%%")


def _options(args: argparse.Namespace) -> dict[str, list[str]]:
    """The directives that were given as options, as the header would write them."""
    options: dict[str, list[str]] = {}
    for entry in _table().entries:
        value = getattr(args, f"directive_{entry.name}")
        if value is True:
            options[entry.name] = ["true"]
        elif value:
            options[entry.name] = value
    if args.detach_short:
        options["detach"] = ["true"]
    if args.arguments:
        options["args"] = [" ".join(map(quote, args.arguments))]
    return options
