"""Fingerprint of everything on this machine that pip's answers depend on, for their caches."""

from __future__ import annotations

import configparser
import contextlib
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ciao_kernel.delivery.packages.pip import environment

_HASTE = ("CACHE_DIR", "NO_CACHE_DIR", "RETRIES", "TIMEOUT", "DEFAULT_TIMEOUT", "NO_COLOR")
"""Settings that do not change the result."""
_INDEXES = ("index-url", "extra-index-url", "i")
_FILES = ("find-links", "f", "constraint", "requirement")
"""Settings that may name local paths."""
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
        name.removeprefix("PIP_"): value
        for name, value in environment(index).items()
        if name.startswith("PIP_") and name.removeprefix("PIP_") not in _HASTE
    }
    texts = list(_configured())
    known = [(_plain(name), value) for name, value in pip_variables.items()]
    for text in texts:
        parser = configparser.RawConfigParser()
        with contextlib.suppress(configparser.Error):
            parser.read_string(text)
        known += [
            (_plain(name), value)
            for one in parser.sections()
            for name, value in parser[one].items()
        ]
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


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _configured() -> Iterator[str]:
    """Yield the texts of pip's own files: https://pip.pypa.io/en/stable/topics/configuration/."""
    own = os.environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    folders = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    folders += [os.environ.get("XDG_CONFIG_HOME") or "~/.config"]
    folders += ["/Library/Application Support", "~/Library/Application Support"]
    files = [f"{one}/pip/pip.conf" for one in folders]
    files += [f"{one}/pip.conf" for one in ("/etc", sys.prefix, sys.base_prefix, "~/.pip")]
    for file in (*files, own):
        with contextlib.suppress(OSError, RuntimeError):
            yield Path(file).expanduser().read_text(errors="replace") if file else ""


def _archives(place: str, deep: bool) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of a local file, or of the archives in a local folder."""
    if place.startswith("file:"):
        place = unquote(urlsplit(place).path)
    if not place or "://" in place:
        return
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # no home, or not a path
        root = Path("/", Path(place).expanduser())  # pip runs there
        for path in [root] if root.is_file() else root.iterdir():
            if path == root or (_ARCHIVE.search(path.name) and path.is_file()):
                status = path.stat()
                yield str(path), status.st_size, status.st_mtime_ns
            elif deep and path.is_dir():
                yield from _archives(str(path), False)
