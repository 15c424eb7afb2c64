"""``ciao config``: show settings with the places they came from, and change them."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from ciao_kernel import config
from ciao_kernel.commands import Face, add_output
from ciao_kernel.display.table import columns
from ciao_kernel.errors import EnvironmentFault, UsageError

HELP = "show all settings, or change some: ciao config key=value"


def arguments(verb: argparse.ArgumentParser) -> None:
    """Changes, where they go, and ``--output``."""
    verb.add_argument("changes", nargs="*", metavar="key=value", help="a setting and its value")
    verb.add_argument(
        "--save", action="store_true", help="keep the change for all kernels (a terminal always does)"
    )
    add_output(verb)


async def run(args: argparse.Namespace, face: Face) -> None:
    """Change settings of this kernel, or of the user's file, or show them all."""
    if args.changes:
        values = dict(_pair(change) for change in args.changes)
        changed = face.session.settings.with_values(values, "%ciao config")
        face.session.settings = changed
        if args.save or face.terminal:
            file = config.config_files()[1]
            _save(file, values)
            face.write(f"saved in {file}\n")
        return
    rows = face.session.settings.rows()
    if args.output == "json":
        names = ("name", "value", "origin", "help")
        records = [dict(zip(names, row, strict=True)) for row in rows]
        face.write(json.dumps(records, indent=2) + "\n")
    else:
        face.write(columns([("SETTING", "VALUE", "FROM", "WHAT IT IS"), *rows]) + "\n")


def _pair(change: str) -> tuple[str, str]:
    name, equals, value = change.partition("=")
    if not equals:
        raise UsageError(f"{change!r} is no change.", "Write key=value, such as backend=local.")
    return name.strip(), value


def _save(file: Path, values: dict[str, str]) -> None:
    """Set lines of the user's file; other lines and comments stay as they are."""
    try:
        text = file.read_text() if file.exists() else ""
        for name, value in values.items():
            line = f"{name} = {json.dumps(value)}"
            pattern = re.compile(rf"^[ \t]*{re.escape(name)}[ \t]*=.*$", re.MULTILINE)
            if pattern.search(text):
                text = pattern.sub(lambda _, line=line: line, text, count=1)
            else:
                text += ("\n" if text and not text.endswith("\n") else "") + line + "\n"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise EnvironmentFault(f"{file} cannot be written: {error.strerror}.") from error
