"""Flags in Dockerfiles that an executor may accept but not carry out, as the archived kaniko."""

from __future__ import annotations

from collections.abc import Iterable

MOUNT = "--mount"
_IGNORED = (
    ("RUN", MOUNT, ""),
    ("RUN", "--network", "default"),
    ("RUN", "--device", ""),
    ("ADD", "--checksum", ""),
    ("ADD", "--keep-git-dir", "false"),
    ("ADD", "--exclude", ""),
    ("ADD", "--unpack", ""),
    ("COPY", "--exclude", ""),
    ("COPY", "--parents", "false"),
)
"""Instructions and their flags, each with a value that has no effect anyway."""


def ignored(name: str, flags: Iterable[str]) -> str:
    """Return the first flag whose absence would change the image; "" if there is none.

    Args:
        name: Name of the instruction in capitals.
        flags: Its flags.
    """
    defaults = {flag: default for one, flag, default in _IGNORED if one == name}
    for given in flags:
        flag, _, value = given.partition("=")
        harmless = _is_cache(value) if flag == MOUNT else value and value == defaults.get(flag)
        if flag in defaults and not harmless:
            return given
    return ""


def _is_cache(mount: str) -> bool:
    """Return whether a mount is a folder that is empty at first.

    Without it, a command only takes longer, and its cache stays in the image.
    """
    options = mount.split(",")
    return "type=cache" in options and not any(one.startswith("from=") for one in options)
