"""Hide users, passwords and tokens in a text before it is shown or logged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

_NO_PORT = r"(?!\d{1,5}(?:[/?#\s]|\Z))"
_USER = re.compile(
    rf"//(?:[^/\s]+@|[^/\s:@\[\]]{{1,256}}+:{_NO_PORT}[^/\s@]{{0,256}}+/[^\s@]{{0,256}}+@)"
)
"""A user, or a user and a password, in an address. The password may contain an @, or a / that
should have been written as %2F: a part that begins like a port is not taken for one."""
_SECRET = re.compile(
    rf"://[^/\s:@\"'\[\]]*:(?:[^/\s$\"'{{}}]+@|{_NO_PORT}[^/\s$\"'{{}}@]{{0,256}}+/[^\s$\"'{{}}@]{{0,256}}+@)"
)
_ADDRESS = re.compile(r"://[^\s\"'<>]*")
_TOKEN = re.compile(r"(?<!:/)/t/[A-Za-z0-9_-]++(?=/(?!\d++(?:[/?#),.]|\Z)))")
"""A token in an address of Anaconda's servers: ``https://conda.anaconda.org/t/TOKEN/team``. If a
number follows, it is the topic of a forum: ``https://discuss.pytorch.org/t/TITLE/123``."""
_CREDENTIALS = re.compile(r"\b((?:bearer|basic)\s{1,4})[\w.~+/=-]{6,}+", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"((?:(?:password|passwd|pwd|token|secret|credential|api_?key|authorization|signature)"
    r"[\w-]{0,40}+|[?&](?:sig|_state))[\"']?\s{0,4}[=:]\s{0,4}[\"']?)(?:token\s{1,4})?[^\s\"',;&)}\]]{1,4096}",
    re.IGNORECASE,
)
"""A value whose name says that it is secret: ``token=…``, ``"HF_TOKEN": "…"``, Jupyter's
``Authorization: token …``, and what signs an address or names an upload of a registry."""
_GIVEN = re.compile(
    r"""
    (?: (?<![\w%-]) [A-Z][A-Z0-9_]{1,63}+ =(?!=)
      | (?i:password|passwd|pwd|token(?!iz)|secret|credential|api_?key|authorization)
        [\w-]{0,40}+ ["']? (?: \s{0,4} [=:] \s{0,4} | \s{1,4} )
    )
    (?!=?--[a-z]) (?P<value> (?>(?: '[^']*+'? | "[^"]*+"? | [^\s;'"] )+) )
    | // (?P<user> [^/\s]+ ) @
    """,
    re.X,
)
"""What may be secret in a text of a directive: ``HF_HOME=…``, ``--token …``, ``//user:…@host``."""


def mask(text: str) -> str:
    """Return the text without the users, passwords and tokens in its addresses."""
    return _ADDRESS.sub(lambda found: _TOKEN.sub("/t/…", found[0]), _USER.sub("//…@", text))


def scrub(text: str) -> str:
    """Return the text of a log or a report without what may be a secret.

    Stricter than :func:`mask`, which must leave a user's own text readable.
    """
    return _ASSIGNED.sub(r"\1…", _CREDENTIALS.sub(r"\1…", mask(text)))


def secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each part of a directive's text that may be secret.

    Stricter than :func:`scrub`: a variable in capitals may have any value.
    """
    for found in _GIVEN.finditer(text):
        yield found.span("value" if found["value"] else "user")


def conceal(text: str) -> str:
    """Return a value of a directive for a message, without :func:`secrets`."""
    parts, last = [], 0
    for start, end in secrets(text):
        parts += [text[last:start], "…"]
        last = end
    return "".join((*parts, text[last:]))


def origin(address: str) -> str:
    """Return scheme and host of an address, "" for none; path and query may hold secrets."""
    try:
        found = urlsplit(mask(address))
    except ValueError:
        return ""
    return f"{found.scheme}://{found.netloc}" if found.netloc else ""


def password(text: str) -> bool:
    """Return whether an address in a text has a literal password or token, not a variable."""
    return bool(_SECRET.search(text)) or any(map(_TOKEN.search, _ADDRESS.findall(text)))


def line_with_password(text: str) -> int:
    """Return the first line, from 1, with a user, password or token in an address; 0 if none."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if mask(line) != line), 0)
