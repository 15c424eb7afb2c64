"""Fingerprint of everything on this machine that pip's answers depend on, for their caches."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ciao_kernel.delivery.packages import pip_settings
from ciao_kernel.errors import UsageError
from ciao_kernel.user_path import expanded

_HASTE = ("CACHE_DIR", "NO_CACHE_DIR", "RETRIES", "TIMEOUT", "DEFAULT_TIMEOUT", "NO_COLOR")
"""Settings that do not change the result."""
_INDEXES = ("index-url", "extra-index-url", "i")
_FILES = ("find-links", "f", "constraint", "requirement")
"""Settings that may name local paths."""
_PASSWORD = re.compile(r"(?<=://)[^/\s@]+@")
"""User and password in an address."""
_ARCHIVE = re.compile(r"\.(whl|zip|html?|tar|tgz|tbz2?|txz|tar\.\w+)$")


def digest(options: Sequence[str], index: str) -> str:
    """Return a digest of everything on this machine that pip's answers depend on.

    It covers pip's settings, and the archives in folders that the settings or a requirements file
    name: a wheel that was built again changes the answer. No process is started, and no archive
    is read.

    Args:
        options: Lines of a requirements file that begin with ``-``.
        index: Address of the package index; "" means pip's own setting.
    """
    pip_variables = {
        name: value
        for name, value in pip_settings.variables(pip_settings.environment(index)).items()
        if name not in _HASTE
    }
    if index:  # without a password of pip's settings, which may be a new one each hour
        pip_variables["INDEX_URL"] = index
    texts = list(pip_settings.texts())
    if index:
        texts = [_PASSWORD.sub("", text) for text in texts]
    known = [(pip_settings.plain(name), value) for name, value in pip_variables.items()]
    for text in texts:
        known += [one for section in pip_settings.read(text).values() for one in section.items()]
    for line in options:
        name, value, *_ = re.split(r"[=\s]+", f"{line.lstrip('-')} ", maxsplit=1)
        with contextlib.suppress(ValueError):  # a quote is not closed: pip reports it
            known += [(name, word) for word in shlex.split(value)]
    places = {(index, True)}
    for name, value in known:
        if name in _INDEXES or name in _FILES:
            places |= {(word, name in _INDEXES) for word in (value.strip(), *value.split())}
    found = sorted({one for place, deep in places for one in _archives(place, deep)})
    return hashlib.sha256(
        json.dumps([sorted(pip_variables.items()), texts, found]).encode()
    ).hexdigest()


def _archives(place: str, deep: bool) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of a local file, or of the archives in a local folder."""
    if place.startswith("file:"):
        place = unquote(urlsplit(place).path)
    if not place or "://" in place:
        return
    with contextlib.suppress(OSError, UsageError, ValueError):  # no home, or not a path
        root = Path("/", expanded(place))  # pip runs there
        for path in [root] if root.is_file() else root.iterdir():
            if path == root or (_ARCHIVE.search(path.name) and path.is_file()):
                status = path.stat()
                yield str(path), status.st_size, status.st_mtime_ns
            elif deep and path.is_dir():
                yield from _archives(str(path), False)
