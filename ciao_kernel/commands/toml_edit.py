"""Change keys in the text of a TOML file, and keep all other text unchanged.

Different spellings of a key are equal: ``on-shutdown`` is ``onShutdown``. A key that is set several
times, in different spellings, is changed each time.

tomlkit parses the text, and its lists of entries are changed here. Its own methods for new entries
also change the blank lines around them, and write line feeds into files with CRLF.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ciao_kernel.magics.spelling import key

if TYPE_CHECKING:  # Functions import it: a kernel starts without it.
    from tomlkit.items import Item, Key, Table

    Entry = tuple[Key | None, Item]
    Entries = list[Entry]


@dataclass(frozen=True, slots=True)
class Structured:
    """A value for which TOML has a form of its own, and which may also be written as one text.

    Attributes:
        value: A table, or the elements of an array.
        text: The same value as text, for a key that the file sets to a text.
        any_case: True if the names of a table are in lower case and the file may have any case.
        in_section: False if a section (``[images]``) cannot hold the table, because one of its
            names is a key at the top too. The section then becomes dotted keys.
    """

    value: Mapping[str, str] | tuple[str, ...]
    text: str
    any_case: bool = True
    in_section: bool = True

    def name(self, written: str) -> str:
        """Return the name in the table for a name in the file."""
        return written.lower() if self.any_case else written


Value = str | int | float | Structured
Change = Value | None
"""A new value; None removes the key."""


def changed(text: str, values: Mapping[str, Change]) -> str | None:
    """Set or remove keys at the top of a TOML file.

    A value keeps its form in the file: text, array, inline table, dotted keys (``images.pytorch``)
    or section (a table with its header, ``[images]``), if that form can hold it.

    Args:
        text: The text of the file, which is valid TOML.
        values: New values by key, with the spelling for keys that the file does not have yet.

    Returns:
        The new text; None if a key has a form that cannot be changed, such as an array of tables.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        return None
    if document.as_string() != text:  # a bug of some release would change other lines
        return None
    newline = "\r\n" if "\r\n" in text else "\n"
    for name, value in values.items():
        if value is None:
            _remove(document.body, name)
            continue
        _set(document.body, name, value, newline)
    new = document.as_string()
    return new if _says(new, tomllib.loads(text), values) else None


def literal(value: Value) -> str:
    """Return a value in the form that it has in a file."""
    return _own_form(value).as_string()


def _says(text: str, old: Mapping[str, Any], values: Mapping[str, Change]) -> bool:
    """Return whether a text has the new values, and keeps all other values."""
    try:
        new = tomllib.loads(text)
    except ValueError:
        return False
    wanted = {key(name): value for name, value in values.items()}
    others = {name: value for name, value in old.items() if key(name) not in wanted}
    set_now = {name: value for name, value in new.items() if key(name) in wanted}
    kept = {name for name, value in wanted.items() if value is not None}
    return (
        {name: value for name, value in new.items() if name not in set_now} == others
        and {key(name) for name in set_now} == kept
        and all(_is(value, wanted[key(name)]) for name, value in set_now.items())
    )


def _is(found: object, wanted: Change) -> bool:
    if not isinstance(wanted, Structured):
        return found == wanted
    if isinstance(found, dict):
        return {wanted.name(name): value for name, value in found.items()} == wanted.value
    return found == wanted.text or (isinstance(found, list) and tuple(found) == wanted.value)


def _remove(body: Entries, name: str) -> None:
    """Remove each line of a key; a section stays, because its lines may be meant for other keys."""
    from tomlkit.items import AoT, Table

    body[:] = [
        (found, item)
        for found, item in body
        if found is None or key(found.key) != key(name) or isinstance(item, Table | AoT)
    ]


def _set(body: Entries, name: str, value: Value, newline: str) -> None:
    """Change each entry of a key; if there is none, add it before the first section."""
    same = [found.key for found, _ in body if found and key(found.key) == key(name)]
    for spelling in dict.fromkeys(same):
        _change(body, spelling, value, newline)
    if not same:
        _insert(body, _top_end(body), [_line("", name, _own_form(value), newline)], newline)


def _top_end(body: Entries) -> int:
    """Return the place before the first section."""
    from tomlkit.items import AoT, Table

    sections = (
        place
        for place, (found, item) in enumerate(body)
        if isinstance(item, Table | AoT) and found and not found.is_dotted()
    )
    return next(sections, len(body))


def _change(body: Entries, spelling: str, value: Value, newline: str) -> None:
    """Change the entries of one spelling: several only if its keys are dotted.

    A form that is not understood stays unchanged, and then the text does not have the new value.
    """
    from tomlkit.items import AoT, Table

    places = [place for place, (found, _) in enumerate(body) if found and found.key == spelling]
    found, old = body[places[0]]
    assert found is not None
    if not isinstance(old, Table | AoT):
        body[places[0]] = (found, _like(old, _fitting(old, value, newline)))
        return
    tables = [item for place in places if isinstance(item := body[place][1], Table)]
    nested = any(isinstance(item, Table | AoT) for table in tables for _, item in table.value.body)
    if not isinstance(value, Structured) or not isinstance(value.value, Mapping) or nested:
        return
    missing = _fill([table.value.body for table in tables], value, value.value)
    if found.is_dotted():
        lines = [_line(f"{found.as_string()}.", *pair, newline) for pair in missing]
        if not value.value:
            lines = [_line("", spelling, _own_form(value), newline)]
        _insert(body, places[-1] + 1, lines, newline)
    elif len(tables) == 1:
        if missing:
            _end_line(old, newline)
        inside = tables[0].value.body
        named = [place for place, (name, _) in enumerate(inside) if name]
        lines = [_line("", *pair, newline) for pair in missing]
        end = named[-1] + 1 if named else 0
        _insert(inside, end, lines, newline)
        if not value.in_section:
            end += len(lines)
            top = _top_end(body)  # the first section, which may be this one
            body[places[0] : places[0] + 1] = inside[end:]
            _insert(body, top, _dotted(found, tables[0], inside[:end], newline), newline)


def _dotted(section: Key, table: Table, inside: Entries, newline: str) -> Entries:
    """Return the lines of a section as dotted keys, with their comments."""
    import tomlkit

    prefix = f"{section.as_string()}."
    lines = [
        *tomlkit.parse(f"{comment}{newline}" if (comment := table.trivia.comment) else "").body
    ]
    for name, item in inside:
        lines.append((name, item) if name is None else _line(prefix, name.key, item, newline))
    return lines


def _fill(
    bodies: list[Entries], wanted: Structured, values: Mapping[str, str]
) -> list[tuple[str, Item]]:
    """Change the members of a table, remove those without a value, and return the missing ones."""
    import tomlkit

    missing = {name: tomlkit.item(value) for name, value in values.items()}
    for body in bodies:
        for place, (name, old) in reversed([*enumerate(body)]):
            if name and (own := wanted.name(name.key)) in values:
                body[place] = (name, _like(old, tomlkit.item(values[own])))
                missing.pop(own, None)
            elif name:
                del body[place]
    return [*missing.items()]


def _line(prefix: str, name: str, item: Item, newline: str) -> Entry:
    """Return a new entry; ``prefix`` are the keys before its own."""
    import tomlkit

    comment = f"{item.trivia.comment_ws}{item.trivia.comment}"
    text = f"{prefix}{tomlkit.key(name).as_string()} = {item.as_string()}{comment}{newline}"
    return tomlkit.parse(text).body[0]


def _insert(body: Entries, place: int, lines: Entries, newline: str) -> None:
    """Insert lines, and end the line before them: the last line of a file may have no end."""
    from tomlkit.items import Table, Whitespace

    if place and lines:
        before = body[place - 1][1]
        while isinstance(before, Table) and before.value.body:
            before = before.value.body[-1][1]
        if not isinstance(before, Whitespace):
            _end_line(before, newline)
    body[place:place] = lines


def _end_line(item: Item, newline: str) -> None:
    if not item.trivia.trail.endswith("\n"):
        item.trivia.trail += newline


def _fitting(old: Item, value: Value, newline: str) -> Item:
    """Return a value in the form that the file has for it, if that form can hold the value."""
    import tomlkit
    from tomlkit.items import Array, String

    if not isinstance(value, Structured):
        return _own_form(value)
    if isinstance(old, String):
        return tomlkit.item(value.text)
    if not isinstance(old, Array) or isinstance(value.value, Mapping):
        return _own_form(value)
    # The elements that stay keep their lines and comments.
    for element in value.value:
        if element not in old:
            old.append(element)
    for place in reversed(range(len(old))):
        if old[place] not in value.value:
            del old[place]
    text = old.as_string().replace("\r\n", "\n").replace("\n", newline)
    try:
        same = tomllib.loads(f"key = {text}")["key"] == [*value.value]
    except ValueError:
        same = False
    return tomlkit.value(text) if same else _own_form(value)


def _own_form(value: Value) -> Item:
    import tomlkit

    if isinstance(value, Structured):
        if not isinstance(value.value, Mapping):
            return tomlkit.item([*value.value])
        table = tomlkit.inline_table()
        table.update(value.value)
        return table
    if isinstance(value, float) and value.is_integer():
        return tomlkit.item(int(value))
    return tomlkit.item(value)


def _like(old: Item, new: Item) -> Item:
    """Return a value with the spaces and the comment around another one."""
    new.trivia.indent = old.trivia.indent
    new.trivia.comment_ws = old.trivia.comment_ws
    new.trivia.comment = old.trivia.comment
    new.trivia.trail = old.trivia.trail
    return new
