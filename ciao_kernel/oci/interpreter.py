"""Python of an image and its packages, chosen from the paths in the image as its system would."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CONFIG = "/pyvenv.cfg"
"""End of the path of a virtual environment's settings."""
MUSL = re.compile(r"/(?:usr/)?lib/ld-musl-")
"""Path of the loader of musl."""
GLIBC = re.compile(r"/(?:usr/)?lib(?:64|/[\w-]+)?/libc\.so\.6")
"""Path of the C library of GNU."""
_GLIBC_VERSION = re.compile(r"(?:(?:.*/)?libc-)?2\.(\d+)(?:\.so)?")
"""Its version: as it was read, or in the name that it links to (until 2.33)."""
_SITE = re.compile(
    r"(?P<prefix>.*)/lib(?:32|64)?/python(?P<version>3(?:\.\d+)?)/(?:site|dist)-packages"
)
_PYTHON = re.compile(r"(?P<folder>.*/bin)/python3\.(?P<minor>\d+)$")
_VERSION = re.compile(r"(?:.*/)?python3\.(\d+)$")
_SHIM = re.compile(r"(?P<root>.*)/shims/(?P<name>[^/]+)$")
"""A script that starts the selected version: https://github.com/pyenv/pyenv#understanding-shims."""
_SYSTEM = "system"
"""pyenv's name of the Python that follows on the PATH."""
_ROOT = ("", "0", "root")
_LINKS = 16
"""Maximum length of a chain of links."""


@dataclass(frozen=True, slots=True)
class Installed:
    """Python of an image, and its packages.

    Args:
        python: Version of Python, such as ``3.13``; "" if none was found.
        packages: Versions of packages, by normalised name.
        musl: The C library is musl, which needs other wheels.
        glibc: Minor version of the C library of GNU, as 36 of 2.36; 0 if it is not known.
    """

    python: str
    packages: Mapping[str, str] = field(default_factory=dict)
    musl: bool = False
    glibc: int = 0


def choose(
    names: Mapping[str, str], env: Mapping[str, str], python: str, user: str = ""
) -> Installed:
    """Return the Python that a command starts, and the packages that it can import.

    Args:
        names: Paths in the image, each with the target of its link, or "". The path of a virtual
            environment's settings has ``system`` if it includes the packages below it, that of
            pyenv's file ``version`` has the selected versions, separated by colons, and that of the
            C library has its version.
        env: Environment variables of the image.
        python: The command, or a path.
        user: User of the image; "" means root.
    """
    from packaging.utils import (
        canonicalize_name,
    )  # imported late: kernels import it when they start

    musl, glibc = any(map(MUSL.match, names)), _glibc(names)
    search = [] if "/" in python else env.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    path = _found(names, env, python, search)
    unknown = bool(_SHIM.match(path))
    version = "" if unknown else _version(names, path)
    if not version and (unknown or python in ("python", "python3")):
        # The command may be a script that selects a version, as in pyenv. If there is only one
        # Python, it is that one.
        path, version = _only(names, [] if path else search)
    if not version:
        return Installed("", musl=musl, glibc=glibc)
    added = [one.rstrip("/") for one in env.get("PYTHONPATH", "").split(":") if one]
    prefixes = _prefixes(names, path, [] if env.get("PYTHONNOUSERSITE") else _of_user(env, user))
    ranks: dict[str, int] = {}
    packages: dict[str, str] = {}
    for one in names:
        if not one.endswith(".info"):
            continue
        site, _, name = one.removesuffix(".info").rpartition("/")
        rank = _rank(site, version, added, prefixes)
        name, _, version_of_it = re.sub(r"-py3\.\d+$", "", name).rpartition("-")
        known = canonicalize_name(name)
        if name and rank is not None and rank < ranks.get(known, len(added) + len(prefixes)):
            ranks[known], packages[known] = rank, version_of_it
    return Installed(version, packages, musl, glibc)


def _glibc(names: Mapping[str, str]) -> int:
    """Return the minor version of glibc, the oldest of several; 0 if it is not known."""
    links = (target for path, target in names.items() if GLIBC.fullmatch(path))
    matches = map(_GLIBC_VERSION.fullmatch, links)
    return min((int(match[1]) for match in matches if match), default=0)


def _found(
    names: Mapping[str, str], env: Mapping[str, str], python: str, search: Sequence[str]
) -> str:
    """Return the path of a command; "" if it is not found."""
    for path in [f"{folder.rstrip('/')}/{python}" for folder in search] or [python]:
        # If /bin is a link to /usr/bin, the layer lists the files only in /usr/bin.
        for one in (path, f"/usr{path}"):
            if one in names and (started := _started(names, env, one)):
                return started
    return ""


def _started(names: Mapping[str, str], env: Mapping[str, str], path: str) -> str:
    """Return the path that a command starts: a shim of pyenv starts another one.

    A shim whose choice is unknown is returned itself; "" means that it leaves the choice to the
    PATH.
    """
    shim = _SHIM.match(path)
    if not shim:
        return path
    selected = env.get("PYENV_VERSION") or names.get(f"{shim['root']}/version", "")
    for version in filter(None, selected.split(":")):
        if version == _SYSTEM:
            return ""
        folder = re.escape(f"{shim['root']}/versions/{version}")
        # pyenv takes 3.12 for the newest 3.12.N.
        these = re.compile(rf"{folder}(\.[^/]+)?/bin/{re.escape(shim['name'])}")
        matches = [one for one in names if these.fullmatch(one)]
        exact = [one for one in matches if not these.fullmatch(one)[1]]  # type: ignore[index]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
    return path


def _only(names: Mapping[str, str], search: Sequence[str]) -> tuple[str, str]:
    """Return path and version of the only Python; "" and "" if there are others.

    Args:
        names: Paths in the image.
        search: Folders of a PATH that lead to a Python through the link of a folder, such as
            ``current -> 3.11.9``: it may be a Python or a virtual environment of it.
    """
    found = {
        (posixpath.dirname(one).removeprefix("/usr"), _version(names, one)): one
        for one in names
        if _PYTHON.match(one)
    }
    if len(found) > 1 and len({version for _, version in found}) == 1:
        near = (
            {key: one for key, one in found.items() if _is_beside(posixpath.dirname(one), folder)}
            for folder in search
        )
        found = next(filter(None, near), {})
    if len(found) != 1:
        return "", ""
    ((_, version), path) = found.popitem()
    return path, version


def _is_beside(folder: str, other: str) -> bool:
    """Return whether two folders differ in one name, as the target of a link beside it does."""
    parts, others = folder.split("/"), other.rstrip("/").split("/")
    return len(parts) == len(others) and sum(map(str.__ne__, parts, others)) == 1


def _numbered(names: Mapping[str, str], folder: str) -> str:
    """Return the newest ``python3.N`` of a folder; "" if it has none."""
    matches = [m for path in names if (m := _PYTHON.match(path)) and m["folder"] == folder]
    newest = max(matches, key=lambda match: int(match["minor"]), default=None)
    return newest[0] if newest else ""


def _followed(names: Mapping[str, str], path: str) -> Iterator[str]:
    """Yield a path, and the targets of its chain of links."""
    for _ in range(_LINKS):
        yield path
        target = names.get(path, "")
        if not target:
            return
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if path not in names and f"/usr{path}" in names:
            path = f"/usr{path}"


def _version(names: Mapping[str, str], path: str) -> str:
    """Return the Python version in the name of a path or of its link targets; "" if none."""
    for one in _followed(names, path):
        if match := _VERSION.match(one):
            return f"3.{match[1]}"
    near = _numbered(names, posixpath.dirname(path)) if path else ""
    match = _VERSION.match(near)
    return f"3.{match[1]}" if match else ""


def _of_user(env: Mapping[str, str], user: str) -> list[str]:
    """Return the prefix of packages of one user: ``pip install --user``."""
    if base := env.get("PYTHONUSERBASE"):
        return [base.rstrip("/")]
    name = user.partition(":")[0]
    home = "/root" if name in _ROOT else "" if name.isdigit() else f"/home/{name}"
    home = (env.get("HOME") or home).rstrip("/")
    return [f"{home}/.local"] if home else []


def _prefixes(names: Mapping[str, str], path: str, of_user: list[str]) -> list[str]:
    """Return the prefixes of an interpreter's packages, in the order in which it searches them.

    A virtual environment has its own.
    """
    *_, last = _followed(names, path)
    own, base = (posixpath.dirname(posixpath.dirname(one)).rstrip("/") for one in (path, last))
    config = names.get(f"{own}{CONFIG}")
    if config == "":
        return [own]
    found = [base] if config is None else [own, base]
    if base in ("", "/usr"):  # Debian's Python uses both
        found[-1:] = ["/usr/local", "/usr", base]
    at = 0 if config is None else 1
    return list(dict.fromkeys([*found[:at], *of_user, *found[at:]]))


def _rank(site: str, version: str, added: list[str], prefixes: list[str]) -> int | None:
    """Return the place of a folder of packages on Python's path; None if it is not on it."""
    if site in added:
        return added.index(site)
    match = _SITE.fullmatch(site)
    # Debian's own packages are in python3/, all others in python3.13/.
    if match and match["prefix"] in prefixes and match["version"] in ("3", version):
        return len(added) + prefixes.index(match["prefix"])
    return None
