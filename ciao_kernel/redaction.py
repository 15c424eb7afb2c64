"""Hide users, passwords and tokens in a text before it is shown or logged."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_USER = re.compile(r"//[^/\s]+@")
"""A user, or a user and a password, in an address; the password may contain an @."""
_SECRET = re.compile(r"://[^/\s:@\"']*:[^/\s$\"'{}]+@")
_ADDRESS = re.compile(r"://[^\s\"'<>]*")
_TOKEN = re.compile(r"(?<!:/)/t/[A-Za-z0-9_-]++(?=/(?!\d++(?:[/?#),.]|\Z)))")
"""A token in an address of Anaconda's servers: ``https://conda.anaconda.org/t/TOKEN/team``. If a
number follows, it is the topic of a forum: ``https://discuss.pytorch.org/t/TITLE/123``."""
_CREDENTIALS = re.compile(r"\b((?:bearer|basic)\s{1,4})[\w.~+/=-]{6,}+", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"((?:password|passwd|pwd|token|secret|credential|api_?key|authorization)[\w-]{0,40}+"
    r"[\"']?\s{0,4}[=:]\s{0,4}[\"']?)[^\s\"',;&)}\]]{1,4096}",
    re.IGNORECASE,
)
"""A value whose name says that it is secret: ``token=…``, ``"HF_TOKEN": "…"``."""


def mask(text: str) -> str:
    """Return the text without the users, passwords and tokens in its addresses."""
    return _ADDRESS.sub(lambda found: _TOKEN.sub("/t/…", found[0]), _USER.sub("//…@", text))


def scrub(text: str) -> str:
    """Return the text of a log or a report without what may be a secret.

    Stricter than :func:`mask`, which must leave a user's own text readable.
    """
    return _ASSIGNED.sub(r"\1…", _CREDENTIALS.sub(r"\1…", mask(text)))


def origin(address: str) -> str:
    """Return scheme and host of an address, "" for none; path and query may hold secrets."""
    try:
        found = urlsplit(address)
    except ValueError:
        return ""
    return mask(f"{found.scheme}://{found.netloc}") if found.netloc else ""


def password(text: str) -> bool:
    """Return whether an address in a text has a literal password or token, not a variable."""
    return bool(_SECRET.search(text)) or any(map(_TOKEN.search, _ADDRESS.findall(text)))


def line_with_password(text: str) -> int:
    """Return the first line, from 1, with a user, password or token in an address; 0 if none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if mask(line) != line), 0)
