"""``ciao config``: show settings with their sources, and change them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields

from ciao_kernel import config
from ciao_kernel.commands import Caller, completion, settings_file, toml_edit
from ciao_kernel.commands.shared_arguments import add_output
from ciao_kernel.config import Settings
from ciao_kernel.config.setting_types import Images
from ciao_kernel.display.columns import columns
from ciao_kernel.errors import UsageError
from ciao_kernel.magics.spelling import key
from ciao_kernel.session import named_plugins


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the changes, ``--save`` and ``--output``."""
    changes = verb.add_argument(
        "changes", nargs="*", metavar="key=value", help="a setting and its value"
    )
    completion.by(completion.settings, changes)
    verb.add_argument(
        "--save", action="store_true", help="save it for all kernels (always done in a terminal)"
    )
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Change settings of this kernel or of the user's file, or show all settings."""
    if args.changes:
        _change(dict(map(_pair, args.changes)), args, caller)
        return
    rows = caller.session.settings.rows()
    if args.output == "json":
        caller.write(_json(rows))
    else:
        caller.write(columns([("SETTING", "VALUE", "FROM", "WHAT IT IS"), *rows]) + "\n")
    if caller.terminal and (faults := config.load_with_errors()[1]):
        raise faults[0]


def _pair(change: str) -> tuple[str, str]:
    name, equals, value = change.partition("=")
    if not equals or not name.strip():
        raise UsageError(
            f"{change!r} is not of the form key=value.",
            "Write it without spaces, as in backend=local.",
        )
    return name.strip(), value.strip()


def _change(values: dict[str, str], args: argparse.Namespace, caller: Caller) -> None:
    old = caller.session.settings
    new = old.with_values(values, "ciao config" if caller.terminal else "%ciao config")
    known = {key(one.name): one.name for one in fields(Settings)}
    changed = [known[name] for name in dict.fromkeys(map(key, values))]
    notices: list[str] = []
    for name in (one for one in changed if one in named_plugins.SETTINGS):
        fault = named_plugins.fault(name, new, caller.session.registry)
        if fault and name not in named_plugins.OF_LATER:
            raise fault
        if fault:
            notices.append(f"{fault.message} {fault.hint}\n")
    save = args.save or caller.terminal
    if save:
        file = config.config_files()[1]
        # Save the parsed value, not the typed text: a relative folder depends on where it is used.
        settings_file.save(
            file, {config.shown_name(name): _saved(name, getattr(new, name)) for name in changed}
        )
    caller.session.settings = new
    names = {config.shown_name(name) for name in changed}
    if args.output == "json":
        caller.write(_json(row for row in new.rows() if row[0] in names))
        return
    for notice in notices:
        caller.write(notice)
    if save:
        caller.write(f"saved in {file}\n")
        for name in changed:
            if caller.terminal and (origin := old.origins.get(name, "")).startswith("$"):
                caller.write(f"{origin} is set in this terminal, and overrides the file there.\n")
    else:
        caller.write("set for this kernel; --save sets it for all kernels\n")


def _saved(name: str, value: object) -> toml_edit.Value:
    kind = next(one for one in fields(Settings) if one.name == name).metadata["kind"]
    text = str(kind.render(value))
    if isinstance(value, Mapping):
        others = {key(other.name) for other in fields(Settings)} - {key(name)}
        return toml_edit.Structured(
            value,
            text,
            any_case=isinstance(kind, Images),
            in_section=not others.intersection(map(key, value)),
        )
    if isinstance(value, tuple):
        return toml_edit.Structured(tuple(map(str, value)), text)
    # The number of a word, as that of lines=all, has no meaning in a file.
    return value if isinstance(value, int | float) and _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _json(rows: Iterable[tuple[str, str, str, str]]) -> str:
    names = ("name", "value", "origin", "help")
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2) + "\n"
