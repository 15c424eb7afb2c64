"""Settings of pip on this machine, and the variables that ciao runs it with."""

from __future__ import annotations

import configparser
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ciao_kernel.errors import EnvironmentFault, UsageError
from ciao_kernel.user_path import expanded

# User settings that would change pip's target or its output.
_DROPPED = ("TARGET", "PREFIX", "ROOT", "PYTHON", "DRY_RUN", "REPORT", "QUIET", "VERBOSE", "LOG")
ONLY = {
    # pip ignores an empty value, and takes the value of its files; a blank is a list of nothing.
    "PIP_EXTRA_INDEX_URL": " ",
    "PIP_FIND_LINKS": " ",
    "PIP_NO_INDEX": "0",
}
"""Leaves no other source of packages beside the index of a cell."""
_PLACES = ("target", "prefix", "root")
"""Settings that change the folder for packages."""
_SOURCES = ("index-url", "pypi-url", "extra-index-url", "find-links")
_PUBLIC = "pypi.org"


def environment(index: str) -> dict[str, str]:
    """Return the environment variables for pip.

    Args:
        index: Address of the package index; "" means pip's own setting.
    """
    dropped = {f"PIP_{name}" for name in _DROPPED}
    found = {name: value for name, value in os.environ.items() if name not in dropped}
    found |= {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PIP_REQUIRE_VIRTUALENV": "0",
        "PIP_USER": "0",
        "PYTHONUNBUFFERED": "1",
    }
    if index:
        found.pop("PIP_PYPI_URL", None)  # another name of the index
        found |= {"PIP_INDEX_URL": _with_credentials(index), **ONLY}
    return found


def own_sources(image: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings by which pip takes packages from where pip in an image does not.

    Everybody has pypi.org. Users and passwords in addresses are not compared.

    Args:
        image: Environment variables of the image.

    Returns:
        Names of the settings, such as ``index-url``.
    """
    there = {
        plain(name): {_bare(word) for word in value.split()}
        for name, value in variables(image).items()
    }
    index = there.get("index-url") or there.get("pypi-url") or set()
    # An extra index there adds a source to the index of this machine, and does not replace it.
    known = dict.fromkeys(("index-url", "pypi-url"), index)
    known["extra-index-url"] = index | there.get("extra-index-url", set())
    return tuple(
        name
        for name, value in _sources().items()
        if any(
            _host(word) != _PUBLIC and _bare(word) not in known.get(name, ())
            for word in value.split()
        )
    )


def site_file() -> Path:
    """Return pip's file of the kernel's own environment, which `pip config --site` writes.

    It may not exist. A pip that runs in another environment does not find it.
    """
    return Path(sys.prefix, "pip.conf")


def check() -> None:
    """Check that pip's own files do not send packages to another place.

    Variables that do are dropped, but pip cannot be told to ignore a line of a file.

    Raises:
        EnvironmentFault: A file names another place.
    """
    for file, text in _files():
        sections = read(text)
        for section in "global", "install":
            for name in _PLACES:
                if value := sections.get(section, {}).get(name):
                    raise EnvironmentFault(
                        f"pip would install into another place: {name} = {value.strip()} in "
                        f"{file}.",
                        f"Remove the line ([{section}]), or set the variable PIP_CONFIG_FILE to "
                        f"{os.devnull} before the kernel starts: pip then reads no file.",
                    )


def texts() -> Iterator[str]:
    """Yield the texts of pip's own files; what a later one sets replaces what an earlier one sets.

    https://pip.pypa.io/en/stable/topics/configuration/
    """
    return (text for _, text in _files())


def _files() -> Iterator[tuple[Path, str]]:
    """Yield pip's own files that can be read, each with its text."""
    own = os.environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return
    folders = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")[::-1]
    files = [f"{one}/pip/pip.conf" for one in ("/Library/Application Support", *folders)]
    files.append("/etc/pip.conf")
    if not (own and os.access(own, os.F_OK)):  # it replaces the files of the user
        files += ["~/.pip/pip.conf", "~/Library/Application Support/pip/pip.conf"]
        files += [f"{os.environ.get('XDG_CONFIG_HOME') or '~/.config'}/pip/pip.conf"]
    for file in (*files, str(site_file()), own):
        with contextlib.suppress(OSError, UsageError):
            if file:
                yield (path := expanded(file)), path.read_text(errors="replace")


def read(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of a text of pip's configuration; none if it cannot be read."""
    parser = configparser.RawConfigParser()
    with contextlib.suppress(configparser.Error):
        parser.read_string(text)
    return {
        one: {plain(name): value for name, value in parser[one].items()}
        for one in parser.sections()
    }


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in variables of the environment, by the names of the variables."""
    prefix = "PIP_"
    return {
        name.removeprefix(prefix): value
        for name, value in environment.items()
        if name.startswith(prefix)
    }


def plain(name: str) -> str:
    """Return the name of a setting as pip's files have it, such as ``index-url``."""
    return name.lower().replace("_", "-").removeprefix("--")


def _sources() -> dict[str, str]:
    """Return the sources of packages that pip's settings name."""
    sections = [read(text) for text in texts()]
    levels = [one.get(section, {}) for section in ("global", "install") for one in sections]
    levels.append({plain(name): value for name, value in variables(os.environ).items()})
    found: dict[str, str] = {}
    for level in levels:
        found |= {name: level[name] for name in _SOURCES if level.get(name)}
    return found


def _host(place: str) -> str:
    """Return the host of an address; "" for a path."""
    with contextlib.suppress(ValueError):  # not an address
        return urlsplit(place).hostname or ""
    return ""


def _bare(place: str) -> str:
    """Return an address without its user, its password and a slash at its end."""
    with contextlib.suppress(ValueError):  # not an address
        parts = urlsplit(place)
        place = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return place.rstrip("/")


def _with_credentials(index: str) -> str:
    """Return the address with the user and the password that pip's settings have for it."""
    for value in _sources().values():
        for word in value.split():
            if _bare(word) == index.rstrip("/"):
                return word
    return index
