"""Hide users, passwords and tokens in the addresses of a text before it is shown."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_USER = re.compile(r"//[^/\s]+@")
"""A user, or a user and a password, in an address; the password may contain an @."""
_SECRET = re.compile(r"://[^/\s:@\"']*:[^/\s$\"'{}]+@")
_TOKEN = re.compile(
    r"(://[^\s\"'<>]*?/t/)[A-Za-z0-9_-]+(?=/(?!\d+(?:[/?\#\s\"'<>),.]|$)))", re.MULTILINE
)
"""A token in an address of Anaconda's servers: ``https://conda.anaconda.org/t/TOKEN/team``. If a
number follows, it is the topic of a forum: ``https://discuss.pytorch.org/t/TITLE/123``."""


def masked(text: str) -> str:
    """Return the text without the users, passwords and tokens in its addresses."""
    return _TOKEN.sub(r"\1…", _USER.sub("//…@", text))


def origin(address: str) -> str:
    """Return scheme and host of an address, "" for none; path and query may hold secrets."""
    try:
        found = urlsplit(address)
    except ValueError:
        return ""
    return masked(f"{found.scheme}://{found.netloc}") if found.netloc else ""


def password(text: str) -> bool:
    """Return whether an address in a text has a literal password or token, not a variable."""
    return bool(_SECRET.search(text) or _TOKEN.search(text))


def line_of(text: str) -> int:
    """Return the first line, from 1, with a user, password or token in an address; 0 if none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if masked(line) != line), 0)
