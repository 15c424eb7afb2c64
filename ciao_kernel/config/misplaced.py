"""Search for settings below a table's header in a settings file.

In TOML every line below ``[images]`` belongs to that table, so that ``namespace = "a"`` there would
be the image of a framework with the name ``namespace``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ciao_kernel.errors import SettingError
from ciao_kernel.magics.spelling import key

_HEADER = re.compile(r"[ \t]*\[[ \t]*+[\"']?([^\[\]\"'.#]*+)")
_NAME = re.compile(r"[ \t]*+[\"']?([\w-]++)[\"']?[ \t]*+=")


def misplaced_setting(
    text: str, values: Mapping[str, Any], names: Iterable[str], origin: str
) -> SettingError | None:
    """Return an error for the first setting that is below the header of a table.

    An inline table (``images = {…}``) and dotted keys (``images.pytorch = …``) are not searched:
    there the name of the framework was written on purpose.

    Args:
        text: The text of the file.
        values: The values that TOML finds in it.
        names: The names of all settings.
        origin: The file, for the message.
    """
    known = {key(name) for name in names}
    misplaced = {
        (key(table), key(name))
        for table, value in values.items()
        if key(table) in known and isinstance(value, Mapping)
        for name in value
        if key(name) in known - {key(table)}
    }
    table = ""
    for number, line in enumerate(text.splitlines() if misplaced else (), start=1):
        if header := _HEADER.match(line):
            table = header[1].strip()
        elif (found := _NAME.match(line)) and (key(table), key(found[1])) in misplaced:
            return SettingError(
                f"{origin}, line {number}: the setting {found[1]} is below [{table}], where TOML "
                "reads it as a part of that table.",
                "Move the line to the top of the file, above the first line in brackets. If "
                f"{found[1]} is a name in {table}, write all lines of [{table}] there instead, as "
                f"{table}.{found[1]} = … .",
            )
    return None
