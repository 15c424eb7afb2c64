"""Hides users, passwords and tokens in the addresses of a text, before anybody reads it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_USER = re.compile(r"//[^/\s]+@")
"""A user, or a name and a password, in an address; the password may have an @ of its own."""
_SECRET = re.compile(r"://[^/\s:@\"']*:[^/\s$\"'{}]+@")
_TOKEN = re.compile(
    r"(://[^\s\"'<>]*?/t/)[A-Za-z0-9_-]+(?=/(?!\d+(?:[/?\#\s\"'<>),.]|$)))", re.MULTILINE
)
"""As Anaconda's servers take who asks: ``https://conda.anaconda.org/t/TOKEN/team``. With a number
behind it, it is the topic of a forum: ``https://discuss.pytorch.org/t/TITLE/123``."""


def masked(text: str) -> str:
    """The text without the users, passwords and tokens in its addresses."""
    return _TOKEN.sub(r"\1…", _USER.sub("//…@", text))


def origin(address: str) -> str:
    """The scheme and the host of an address, whose path and query may hold secrets; "" for none."""
    try:
        found = urlsplit(address)
    except ValueError:
        return ""
    return masked(f"{found.scheme}://{found.netloc}") if found.netloc else ""


def password(text: str) -> bool:
    """Whether an address has a password or a token: none that a variable names."""
    return bool(_SECRET.search(text) or _TOKEN.search(text))


def line_of(text: str) -> int:
    """The first line, from 1, that has an address with a user, a password or a token; 0: none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if masked(line) != line), 0)
