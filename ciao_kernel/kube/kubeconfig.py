"""The kubeconfig: its files, read as kubectl reads them.

The client library's own reader goes on as nobody where a plug-in fails, and lets the last of
several files win: its parts are used, and not the whole.
"""

from __future__ import annotations

import base64
import difflib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import sign_in
from ciao_kernel.redaction import masked

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

_LISTS = ("clusters", "contexts", "users")
_PROVIDERS = ("oidc", "gcp")
_NOTHING = ("", os.devnull)
_AHEAD = 60.0
"""Seconds before the end of what a plug-in gave in which it is asked again."""
_PEM = (
    ("_cluster", "certificate-authority", "ssl_ca_cert"),
    ("_user", "client-certificate", "cert_file"),
    ("_user", "client-key", "key_file"),
)
"""Where a loader has certificates, as files or as data, and what the configuration calls them."""


class Context(NamedTuple):
    """A context.

    Args:
        name: Its name.
        namespace: The one that it names, or "".
        pem: What it has of certificates and keys itself, by the configuration's names of files.
        due: When to read it again (seconds since the epoch): before what it holds ends.
    """

    name: str
    namespace: str
    pem: Mapping[str, bytes]
    due: float


def files(environment: Mapping[str, str] | None = None) -> list[Path]:
    """The kubeconfig files that exist, in the order of ``KUBECONFIG``; else ~/.kube/config."""
    found = named(environment) or [Path.home() / ".kube" / "config"]
    return [path for path in found if is_file(path)]


def named(environment: Mapping[str, str] | None = None) -> list[Path]:
    """What ``KUBECONFIG`` names, whether it exists or not; /dev/null is a way to say "none"."""
    value = (os.environ if environment is None else environment).get("KUBECONFIG", "")
    return [Path(text).expanduser() for text in value.split(os.pathsep) if text not in _NOTHING]


def is_file(path: Path) -> bool:
    """Whether there is a file that this user may look at."""
    try:
        return path.is_file()
    except OSError:  # in a folder that is somebody else's
        return False


async def apply(paths: list[Path], context: str, configuration: Configuration) -> Context:
    """Put what a context says into the client library's configuration.

    Args:
        paths: The files.
        context: Its name; "" means the current one.
        configuration: Gets server, token, and the certificates that are files.

    Raises:
        ClusterFault: A file or what it says cannot be used; names the files.
    """
    shown = os.pathsep.join(map(str, paths))
    contents = [(path, _read(path)) for path in paths]
    # As kubectl has it: the first file that says something wins.
    current = next((text for _, one in contents if (text := one.get("current-context"))), "")
    name = context or str(current)
    try:
        known = [str(one["name"]) for _, content in contents for one in content["contexts"]]
        if name not in known:
            raise _no_context(name, known, shown)
        loader = _loader(contents, name)
        answer = await _sign_in(loader) if "exec" in loader._user else sign_in.Credential()
        pem = _taken(loader)
        if answer.certificate:
            loader.cert_file = loader.key_file = None  # else the user's own would be read
            pem |= {"cert_file": answer.certificate.encode(), "key_file": answer.key.encode()}
        _forget_files()
        await loader.load_and_set(configuration)
        proxy = str(configuration.proxy or "")
        if proxy.partition("://")[0] not in ("", "http", "https"):
            raise ValueError("its proxy-url is neither http:// nor https://")
        namespace = loader.current_context["context"].get("namespace") or ""
    except ClusterFault:
        raise
    except Exception as error:  # the library raises whatever a broken file makes it trip over
        raise ClusterFault(
            f"the kubeconfig {shown} cannot be used: {first_line(error)}",
            f"`kubectl config view --context={name}` shows what is in it.",
        ) from None
    now = time.time()
    # What lives for less than two minutes is used for half its life.
    due = answer.until - min(_AHEAD, (answer.until - now) / 2)
    return Context(name, str(namespace), pem, due)


def _read(path: Path) -> dict[str, Any]:
    """Read one file; what it leaves out is there as an empty list."""
    import yaml

    why = "it holds no kubeconfig"
    try:
        # Ten times as fast, where it was compiled in.
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        content, why = None, error.strerror or type(error).__name__
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        content, why = None, f"line {mark.line + 1} is no YAML" if mark else "it is no YAML"
    if not isinstance(content, dict):
        raise ClusterFault(
            f"the kubeconfig {path} cannot be read: {why}.",
            "`kubectl config view` says whether kubectl can.",
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


def _loader(contents: list[tuple[Path, dict[str, Any]]], context: str) -> Any:
    """The library's loader, at the user and the cluster of a context."""
    from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader

    merged: dict[str, Any] = {"current-context": context}
    for name in _LISTS:
        found: dict[str, Any] = {}
        for path, content in contents:
            for one in content[name]:
                # With the path of its file: certificates may be named relative to it.
                node = ConfigNode(name, one, str(path.absolute()))  # type: ignore[no-untyped-call]
                found.setdefault(str(one["name"]), node)
        merged[name] = list(found.values())
    node = ConfigNode("kubeconfig", merged)  # type: ignore[no-untyped-call]
    loader: Any = KubeConfigLoader(  # type: ignore[no-untyped-call]
        node, active_context=context, config_base_path=None
    )
    user = loader.current_context["context"].get("user")
    if loader._user is None:
        if user:
            raise ValueError(f"it has no user {user}, whom the context {context} names")
        # As `kubectl proxy` is used: whoever listens there knows who we are.
        loader._user = ConfigNode("user", {}, loader._cluster.path)  # type: ignore[no-untyped-call]
    provider = loader.provider
    if provider and provider not in _PROVIDERS:
        raise ValueError(f"the auth-provider {provider} is a thing of the past; use a plug-in")
    return loader


def _taken(loader: Any) -> dict[str, bytes]:
    """Take certificates out of a loader that are data: it would make files that stay."""
    from kubernetes.aio.config.kube_config import ConfigNode

    found: dict[str, bytes] = {}
    for part, name, goal in _PEM:
        node = getattr(loader, part)
        if f"{name}-data" in node:
            data = base64.standard_b64decode(node.value[f"{name}-data"] or "")
            # Data goes before a file, also where it is empty.
            rest = {k: v for k, v in node.value.items() if k not in (name, f"{name}-data")}
            setattr(loader, part, ConfigNode(node.name, rest, node.path))  # type: ignore[no-untyped-call]
            if data:
                found[goal] = data
    return found


def _forget_files() -> None:
    """Make the library forget those of its files that are gone: it goes by what was in them."""
    from kubernetes.aio.config import kube_config

    known: dict[str, str] = getattr(kube_config, "_temp_files", {})
    for content in [key for key, path in known.items() if not Path(path).exists()]:
        del known[content]


async def _sign_in(loader: Any) -> sign_in.Credential:
    """Run the user's plug-in, and give the loader the token that it answered."""
    answer = await sign_in.run(
        loader._user.value["exec"], loader._cluster.value, Path(loader._user.path).parent
    )
    if answer.token:
        loader.token = f"Bearer {answer.token}"

    async def done() -> bool:
        return True

    loader.load_from_exec_plugin = done
    return answer


def first_line(error: Exception) -> str:
    """The library's words up to the first thing that it quotes: that may be a token."""
    first = (str(error).strip().splitlines() or [""])[0]
    return masked(re.split(r"[{\[]", first)[0]).strip().rstrip(".") or type(error).__name__
