"""Kubeconfig files, read and merged as kubectl does it (client-go, tools/clientcmd/loader.go)."""

from __future__ import annotations

import base64
import contextlib
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel.errors import ClusterFault, UsageError
from ciao_kernel.home_folder import home
from ciao_kernel.user_path import expanded

_LISTS = ("clusters", "contexts", "users")
_NOTHING = ("", os.devnull)

Versions = tuple[tuple[str, int, int, int], ...]
"""Files with their numbers, sizes and times of change: other ones after each change."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster or a user of a kubeconfig.

    Args:
        values: Its contents.
        folder: Folder of the file that contains it: relative paths start there.
    """

    values: Mapping[str, Any] = field(repr=False)
    folder: Path

    def text(self, name: str) -> str:
        """Return a value as text; "" if it is missing."""
        return str(self.values.get(name) or "")

    def path(self, name: str) -> Path | None:
        """Return a file that a value names; None if it is missing."""
        return self.folder / text if (text := self.text(name)) else None

    def content(self, name: str) -> bytes:
        """Return a certificate or a key: the data in ``NAME-data``, else the contents of a file.

        Raises:
            ValueError: The data is not base64.
            OSError: The file cannot be read.
        """
        if data := self.text(f"{name}-data"):
            return base64.standard_b64decode(data)
        path = self.path(name)
        return path.read_bytes() if path else b""


@dataclass(frozen=True, slots=True)
class Context:
    """A context.

    Args:
        name: Name of the context.
        namespace: Namespace of the context, or "".
        cluster: Its cluster.
        user: Its user; without values if it names none.
    """

    name: str
    namespace: str
    cluster: Entry
    user: Entry


def files(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the existing kubeconfig files: those of ``KUBECONFIG``, in order, or ~/.kube/config.

    The default file is used only if ``KUBECONFIG`` names no file.
    """
    found = named(environment) or [home() / ".kube" / "config"]
    return [path for path in found if is_file(path)]


def named(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the files that ``KUBECONFIG`` names, even missing ones; /dev/null means no file."""
    value = (os.environ if environment is None else environment).get("KUBECONFIG", "")
    return [_path(text) for text in value.split(os.pathsep) if text not in _NOTHING]


def _path(text: str) -> Path:
    try:
        return expanded(text)
    except UsageError:  # the file of an unknown user: missing, as any other that is not there
        return Path(text)


def is_file(path: Path) -> bool:
    """Return whether a file exists and this user may access it."""
    try:
        return path.is_file()
    except OSError:  # in a folder of another user
        return False


def versions(paths: list[Path]) -> Versions:
    """Return the versions of files, which differ after a change; those that are gone are left out.

    Args:
        paths: The files.
    """
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            now = path.stat()
            found.append((str(path), now.st_ino, now.st_size, now.st_mtime_ns))
    return tuple(found)


def read(paths: list[Path], context: str) -> Context:
    """Return a context of kubeconfig files.

    Args:
        paths: The files. The first one with a cluster, user or context of a name wins.
        context: Name of the context; "" means the current one.

    Raises:
        ClusterFault: A file cannot be read, or there is no such context.
        Exception: A file has an unexpected structure.
    """
    contents = [(path, _read(path)) for path in paths]
    current = next((text for _, one in contents if (text := one.get("current-context"))), "")
    name = context or str(current)
    contexts, clusters, users = (
        _merged(contents, part, part.removesuffix("s"))
        for part in ("contexts", "clusters", "users")
    )
    if name not in contexts:
        raise _no_context(name, list(contexts), os.pathsep.join(map(str, paths)))
    chosen = contexts[name]
    cluster, user = chosen.text("cluster"), chosen.text("user")
    if cluster not in clusters:
        raise ValueError(f"it has no cluster {cluster}, which the context {name} names")
    if user and user not in users:
        raise ValueError(f"it has no user {user}, which the context {name} names")
    # A context without a user is that of a server like `kubectl proxy`, which adds credentials.
    nobody = Entry({}, chosen.folder)
    who = users[user] if user else nobody
    return Context(name, chosen.text("namespace"), clusters[cluster], who)


def _merged(contents: list[tuple[Path, dict[str, Any]]], part: str, inner: str) -> dict[str, Entry]:
    """Return the entries of one list of all files, by name."""
    found: dict[str, Entry] = {}
    for path, content in contents:
        for one in content[part]:
            entry = Entry(one.get(inner) or {}, path.absolute().parent)
            found.setdefault(str(one["name"]), entry)
    return found


def _read(path: Path) -> dict[str, Any]:
    """Read one file; lists that it omits are added as empty lists."""
    import yaml

    why = "it is not a kubeconfig"
    try:
        # CSafeLoader is ten times as fast, but not always compiled in.
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        content = {} if content is None else content  # an empty file says nothing, as to kubectl
    except OSError as error:
        content, why = None, error.strerror or type(error).__name__
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        content, why = None, f"line {mark.line + 1} is not YAML" if mark else "it is not YAML"
    if not isinstance(content, dict):
        raise ClusterFault(
            f"the kubeconfig {path} cannot be read: {why}.",
            "`kubectl config view` shows whether kubectl can read it.",
        )
    return {**content, **{name: content.get(name) or [] for name in _LISTS}}


def _no_context(name: str, known: list[str], shown: str) -> ClusterFault:
    among = f"has {', '.join(sorted(set(known)))}" if known else "has none"
    if not name:
        return ClusterFault(
            f"the kubeconfig {shown} has no current context; it {among}.",
            "Name one: %context=…, or `kubectl config use-context …`.",
        )
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else "Name another one: %context=…."
    return ClusterFault(f"there is no context {name}: the kubeconfig {shown} {among}.", hint)
