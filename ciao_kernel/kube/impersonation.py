"""Impersonation: a kubeconfig's user who acts as somebody else, with that user's rights.

The API: https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

_LEGAL = frozenset(string.ascii_letters + string.digits + "!#$&'*+-.^_`|~")
"""Characters of a header's name (RFC 9110, 5.6.2), without the percent sign that escapes others."""


def headers(user: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the headers with which a user acts as another one; none if it acts as itself.

    Args:
        user: A user of a kubeconfig.

    Raises:
        ValueError: Only groups, a UID or further attributes are named, and no user, which the
            server would ignore; or a name is not a text. kubectl refuses both too.
    """
    name, uid = _text(user.get("as")), _text(user.get("as-uid"))
    groups = [_text(group) for group in user.get("as-groups") or ()]
    extra: Mapping[str, Any] = user.get("as-user-extra") or {}
    if not name:
        if uid or groups or extra:
            raise ValueError("its user has as-uid, as-groups or as-user-extra, but not as")
        return ()
    found = [("Impersonate-User", name)]
    if uid:
        found.append(("Impersonate-Uid", uid))
    found += [("Impersonate-Group", group) for group in groups]
    found += [
        (f"Impersonate-Extra-{_escaped(_text(key))}", _text(value))
        for key, values in extra.items()
        for value in values or ()
    ]
    return tuple(found)


def _text(value: object) -> str:
    """Return a name; YAML reads an unquoted ``no`` as false, which must not mean "nobody else"."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{value} is not a text where it names whom to act as: quote it")
    return value


def _escaped(key: str) -> str:
    """Return a key as part of a header's name, as client-go's transport escapes it."""
    return "".join(chr(one) if chr(one) in _LEGAL else f"%{one:02X}" for one in key.encode())
