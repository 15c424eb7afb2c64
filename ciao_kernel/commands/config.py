"""``ciao config``: show settings with their sources, and change them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields
from typing import Any, NamedTuple

from ciao_kernel import config
from ciao_kernel.commands import Caller, completion, settings_file, toml_edit
from ciao_kernel.commands.shared_arguments import add_output
from ciao_kernel.config import Settings
from ciao_kernel.config.setting_types import Images
from ciao_kernel.display.columns import columns
from ciao_kernel.errors import SettingError, UsageError
from ciao_kernel.magics.spelling import key
from ciao_kernel.session import named_plugins


def arguments(verb: argparse.ArgumentParser) -> None:
    """Add the changes, ``--save`` and ``--output``."""
    changes = verb.add_argument(
        "changes",
        nargs="*",
        metavar="key=value",
        help="a setting and its value, key= for its default, key.NAME=value for one member of a "
        "table, key+=value for an addition to a list",
    )
    completion.by(completion.settings, changes)
    verb.add_argument(
        "--save", action="store_true", help="save it for all kernels (always done in a terminal)"
    )
    add_output(verb)


async def run(args: argparse.Namespace, caller: Caller) -> None:
    """Change settings of this kernel or of the user's file, or show all settings."""
    if args.changes:
        _change([_read(one) for one in args.changes], args, caller)
        return
    rows = caller.session.settings.rows()
    if args.output == "json":
        caller.write(_json(rows))
    else:
        caller.write(columns([("SETTING", "VALUE", "FROM", "WHAT IT IS"), *rows]) + "\n")
    if caller.terminal and (faults := config.load_with_errors()[1]):
        raise faults[0]


class Change(NamedTuple):
    """One word of ``ciao config``.

    Args:
        setting: The name of the setting, as typed.
        value: Its value, that of the member, or what is added.
        member: The member of a table, as in ``images.jax=…``; "" for the whole setting.
        adds: Whether the value is added to a list, as in ``plainRegistries+=…``.
    """

    setting: str
    value: str
    member: str = ""
    adds: bool = False


def _read(word: str) -> Change:
    name, equals, value = word.partition("=")
    adds = name.endswith("+")
    # Only the first dot: a member may be nfs://files.example.com/data.
    setting, dot, member = name.removesuffix("+").strip().partition(".")
    if not equals or not setting or (dot and not member):
        raise UsageError(
            f"{word!r} is not of the form key=value.",
            "Write it without spaces, as in backend=local.",
        )
    return Change(setting, value.strip(), member, adds)


def applied(changes: Sequence[Change], settings: Settings, origin: str) -> Settings:
    """Return settings with some changes, each over the result of those before it.

    Args:
        changes: The changes.
        settings: The settings so far.
        origin: Place of the changes, for the user.

    Raises:
        SettingError: A name or a value is wrong, or the setting is no table or no list.
    """
    for one in changes:
        settings = settings.with_values({one.setting: _whole(one, settings, origin)}, origin)
    return settings


def _whole(change: Change, settings: Settings, origin: str) -> Any:
    """Return the value of the whole setting after a change, as a text or as TOML has it."""
    setting = _known().get(key(change.setting))
    if setting is not None and _resets(change):
        below, _ = config.load_with_errors(config.config_files()[:1], {})  # the administrator's
        return _text(change.setting, below)
    if setting is None or not (change.member or change.adds):
        return change.value
    name, present = config.shown_name(setting.name), getattr(settings, setting.name)

    def parsed(value: object) -> Any:
        return getattr(settings.with_values({name: value}, origin), setting.name)

    if change.adds and not isinstance(present, tuple):
        raise SettingError(f"{origin}: {name} is no list, to which += adds.", _forms(name))
    if change.member and not isinstance(present, Mapping):
        raise SettingError(f"{origin}: {name} is no table with members.", _forms(name))
    if change.adds:
        return [*map(str, dict.fromkeys((*present, *parsed(change.value))))]
    if change.value:
        return {**present, **parsed({change.member: change.value})}
    gone = change.member.lower() if isinstance(setting.metadata["kind"], Images) else change.member
    return {one: value for one, value in present.items() if one != gone}


def _text(name: str, settings: Settings) -> str:
    """Return the value of a setting as a text."""
    setting = _known()[key(name)]
    return str(setting.metadata["kind"].render(getattr(settings, setting.name)))


def _resets(change: Change) -> bool:
    """Return whether a change gives a setting its default: it has no value, and needs one."""
    empty = not (change.value or change.member or change.adds)
    return empty and bool(_text(change.setting, Settings()))


def _forms(name: str) -> str:
    """Return a hint with the forms that a change of a setting may have."""
    value = getattr(Settings(), _known()[key(name)].name)
    if isinstance(value, Mapping):
        return f"Expected {name}.NAME=VALUE, or {name}=… for the whole table."
    if isinstance(value, tuple):
        return f"Expected {name}+=VALUE, or {name}=… for the whole list."
    return f"Expected {name}=VALUE."


def _known() -> dict[str, Field[Any]]:
    return {key(one.name): one for one in fields(Settings) if "kind" in one.metadata}


def _change(changes: list[Change], args: argparse.Namespace, caller: Caller) -> None:
    old = caller.session.settings
    origin = "ciao config" if caller.terminal else "%ciao config"
    new = applied(changes, old, origin)
    known = _known()
    changed = [known[one].name for one in dict.fromkeys(key(one.setting) for one in changes)]
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
        kept = new
        if any(one.member or one.adds for one in changes):
            # The rest of a table is that of the files: this kernel may have read them long ago, and
            # may have values of its own.
            kept = applied(changes, config.load(config.config_files(), {}), origin)
        last = {known[key(one.setting)].name: one for one in changes}
        # Save the parsed value, not the typed text: a relative folder depends on where it is used.
        # A default is not saved: it may be another one in a later release.
        values = {
            config.shown_name(name): None if _resets(one) else _saved(name, getattr(kept, name))
            for name, one in last.items()
        }
        settings_file.save(file, values)
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
