"""The text of ``%dryrun``: objects as YAML that a person can read and kubectl takes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def as_yaml(item: dict[str, Any], compact: Collection[str]) -> str:
    """Return an object as YAML, in which the program has the lines of the cell.

    Args:
        item: The object.
        compact: Texts that are written in few long lines, as nobody reads them: ciao's own modules.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes a text of several lines as a literal block, where YAML allows it."""

    def text(dumper: Any, value: str) -> Any:
        # PyYAML reads other ends of lines, such as U+0085, correctly only in double quotes.
        plain = not value or value.splitlines() == value.removesuffix("\n").split("\n")
        style = '"' if value in compact or not plain else "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    shown: str = yaml.dump(item, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return shown
