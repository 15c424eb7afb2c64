"""Kubeconfig files, read as kubectl reads them.

Only parts of the client library's reader are used. As a whole, it continues without credentials
if a plug-in fails, and the last of several files wins.
"""

from __future__ import annotations

import base64
import difflib
import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import exec_plugin
from ciao_kernel.redaction import mask

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

_log = logging.getLogger(__name__)

_LISTS = ("clusters", "contexts", "users")
_PROVIDERS = ("oidc", "gcp")
_NOTHING = ("", os.devnull)
_AHEAD = 60.0
"""Seconds before the expiry of a plug-in's credentials at which the plug-in runs again."""
_PEM = (
    ("_cluster", "certificate-authority", "ssl_ca_cert"),
    ("_user", "client-certificate", "cert_file"),
    ("_user", "client-key", "key_file"),
)
"""Certificates and keys: the loader's node, the entry in it, and the configuration's field."""


class Context(NamedTuple):
    """A context.

    Args:
        name: Name of the context.
        namespace: Namespace of the context, or "".
        pem: Certificates and keys that are in no file, by the configuration's field for the file.
        due: Time to read it again (seconds since the epoch), before its credentials expire.
    """

    name: str
    namespace: str
    pem: Mapping[str, bytes]
    due: float


def files(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the existing kubeconfig files: those of ``KUBECONFIG``, in order, or ~/.kube/config.

    The default file is used only if ``KUBECONFIG`` names no file.
    """
    found = named(environment) or [Path.home() / ".kube" / "config"]
    return [path for path in found if is_file(path)]


def named(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Return the files that ``KUBECONFIG`` names, even missing ones; /dev/null means no file."""
    value = (os.environ if environment is None else environment).get("KUBECONFIG", "")
    return [Path(text).expanduser() for text in value.split(os.pathsep) if text not in _NOTHING]


def is_file(path: Path) -> bool:
    """Return whether a file exists and this user may access it."""
    try:
        return path.is_file()
    except OSError:  # in a folder of another user
        return False


async def apply(paths: list[Path], context: str, configuration: Configuration) -> Context:
    """Apply a context to the client library's configuration.

    Args:
        paths: The kubeconfig files.
        context: Name of the context; "" means the current one.
        configuration: Receives server, token, and the certificates that are files.

    Raises:
        ClusterFault: A file or its contents cannot be used; the message names the files.
    """
    shown = os.pathsep.join(map(str, paths))
    contents = [(path, _read(path)) for path in paths]
    # As in kubectl, the first file with a value wins.
    current = next((text for _, one in contents if (text := one.get("current-context"))), "")
    name = context or str(current)
    try:
        known = [str(one["name"]) for _, content in contents for one in content["contexts"]]
        if name not in known:
            raise _no_context(name, known, shown)
        loader = _loader(contents, name)
        answer = await _sign_in(loader) if "exec" in loader._user else exec_plugin.Credential()
        pem = _taken(loader)
        if answer.certificate:
            loader.cert_file = loader.key_file = None  # otherwise the user's files would be read
            pem |= {"cert_file": answer.certificate.encode(), "key_file": answer.key.encode()}
        _forget_files()
        await loader.load_and_set(configuration)
        proxy = str(configuration.proxy or "")
        if proxy.partition("://")[0] not in ("", "http", "https"):
            raise ValueError("its proxy-url is neither http:// nor https://")
        namespace = loader.current_context["context"].get("namespace") or ""
    except ClusterFault:
        raise
    except Exception as error:  # a broken file can cause any exception in the library
        _log.debug("the context %s cannot be used", name, exc_info=True)
        raise ClusterFault(
            f"the kubeconfig {shown} cannot be used: {first_line(error)}",
            f"`kubectl config view --context={name}` shows its contents.",
        ) from None
    now = time.time()
    # Credentials that live for less than two minutes are used for half their lifetime.
    due = answer.until - min(_AHEAD, (answer.until - now) / 2)
    return Context(name, str(namespace), pem, due)


def _read(path: Path) -> dict[str, Any]:
    """Read one file; lists that it omits are added as empty lists."""
    import yaml

    why = "it is not a kubeconfig"
    try:
        # CSafeLoader is ten times as fast, but not always compiled in.
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
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


def _loader(contents: list[tuple[Path, dict[str, Any]]], context: str) -> Any:
    """Return the library's loader for the user and the cluster of a context."""
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
            raise ValueError(f"it has no user {user}, which the context {context} names")
        # A server like `kubectl proxy`, which adds the credentials itself.
        loader._user = ConfigNode("user", {}, loader._cluster.path)  # type: ignore[no-untyped-call]
    provider = loader.provider
    if provider and provider not in _PROVIDERS:
        raise ValueError(f"the auth-provider {provider} is no longer supported; use a plug-in")
    return loader


def _taken(loader: Any) -> dict[str, bytes]:
    """Remove inline certificates from a loader and return them.

    The loader would write them to files that stay.
    """
    from kubernetes.aio.config.kube_config import ConfigNode

    found: dict[str, bytes] = {}
    for part, name, goal in _PEM:
        node = getattr(loader, part)
        if f"{name}-data" in node:
            data = base64.standard_b64decode(node.value[f"{name}-data"] or "")
            # Data takes precedence over a file, even if the data is empty.
            rest = {k: v for k, v in node.value.items() if k not in (name, f"{name}-data")}
            setattr(loader, part, ConfigNode(node.name, rest, node.path))  # type: ignore[no-untyped-call]
            if data:
                found[goal] = data
    return found


def _forget_files() -> None:
    """Remove deleted files from the library's cache, which finds them by their contents."""
    from kubernetes.aio.config import kube_config

    known: dict[str, str] = getattr(kube_config, "_temp_files", {})
    for content in [key for key, path in known.items() if not Path(path).exists()]:
        del known[content]


async def _sign_in(loader: Any) -> exec_plugin.Credential:
    """Run the user's plug-in, and pass its token to the loader."""
    answer = await exec_plugin.run(
        loader._user.value["exec"], loader._cluster.value, Path(loader._user.path).parent
    )
    if answer.token:
        loader.token = f"Bearer {answer.token}"

    async def done() -> bool:
        return True

    loader.load_from_exec_plugin = done
    return answer


def first_line(error: Exception) -> str:
    """Return the library's message up to its first quotation, which may be a token."""
    first = (str(error).strip().splitlines() or [""])[0]
    return mask(re.split(r"[{\[]", first)[0]).strip().rstrip(".") or type(error).__name__
