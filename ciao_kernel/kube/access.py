"""Which cluster, as whom, in which namespace: from kubeconfig or a pod's service account.

A kubeconfig is read as kubectl reads it. The client library's own reader goes on as nobody where
a plug-in fails, and lets the last of several files win: its parts are used, and not the whole.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ciao_kernel.errors import ClusterFault
from ciao_kernel.kube import sign_in

if TYPE_CHECKING:
    import aiohttp
    from kubernetes.aio.client.configuration import Configuration

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LISTS = ("clusters", "contexts", "users")
_PROVIDERS = ("oidc", "gcp")


@dataclass(frozen=True, slots=True)
class Access:
    """Where requests go and what proves who sends them.

    Args:
        configuration: The client library's, with server, certificates and token.
        namespace: The one that the context or the service account names, if any.
        source: Where it was found, for messages: a context's name, or "service account".
        context: The kubeconfig's context, or "" in a pod.
    """

    configuration: Configuration
    namespace: str
    source: str
    context: str

    async def headers(self) -> dict[str, str]:
        """What proves in each request who sends it."""
        auth: Mapping[str, Any] = await self.configuration.auth_settings()
        # A token file may end in a line feed, which no header can hold.
        return {one["key"]: str(one["value"]).strip() for one in auth.values()}

    def options(self) -> dict[str, Any]:
        """What the connection of a request has to know."""
        found = {
            "server_hostname": self.configuration.tls_server_name,
            "proxy": self.configuration.proxy,
        }
        return {name: value for name, value in found.items() if value}

    def connections(self) -> aiohttp.ClientSession:
        """Make a pool of connections; whoever asks for it closes it.

        Raises:
            ClusterFault: The certificates cannot be used.
        """
        from kubernetes.aio.client.rest import RESTClientObject

        try:
            rest: Any = RESTClientObject(self.configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or getattr(error, "strerror", None)
            raise ClusterFault(
                f"the certificates of {self.source} cannot be used: {why or type(error).__name__}.",
                "Fetch a new kubeconfig: a certificate or its key is damaged.",
            ) from None
        session: aiohttp.ClientSession = rest._create_pool_manager()
        session.trace_configs.append(_no_redirects())
        return session


def _no_redirects() -> aiohttp.TraceConfig:
    """Refuse to be sent elsewhere: no API server does, but a proxy's login page would get it all.

    A WebSocket's handshake follows redirects, and has no option against it.
    """
    import aiohttp

    async def refuse(_: object, __: object, sent: aiohttp.TraceRequestRedirectParams) -> None:
        raise aiohttp.ClientError(f"it sends elsewhere: {sent.response.headers.get('Location')}")

    found = aiohttp.TraceConfig()
    found.on_request_redirect.append(refuse)
    found.freeze()
    return found


def configured(environment: Mapping[str, str] | None = None) -> bool:
    """Tell whether there is a cluster to talk to: cheap, and asks nobody.

    A ``KUBECONFIG`` that names no file means one too: a slip in its path is told by
    :func:`load`, and does not make a job of the cluster a local one.
    """
    return bool(_named(environment) or kubeconfigs(environment)) or _in_cluster(environment)


def kubeconfigs(environment: Mapping[str, str] | None = None) -> list[Path]:
    """The kubeconfig files that exist, in the order of ``KUBECONFIG``; else ~/.kube/config."""
    found = _named(environment) or [Path.home() / ".kube" / "config"]
    return [path for path in found if _is_file(path)]


def _named(environment: Mapping[str, str] | None = None) -> list[Path]:
    """What ``KUBECONFIG`` names, whether it exists or not; /dev/null is a way to say "none"."""
    named = (os.environ if environment is None else environment).get("KUBECONFIG", "")
    return [Path(text).expanduser() for text in named.split(os.pathsep) if text not in _NOTHING]


_NOTHING = ("", os.devnull)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # in a folder that is somebody else's
        return False


def _in_cluster(environment: Mapping[str, str] | None = None) -> bool:
    variables = os.environ if environment is None else environment
    return bool(variables.get("KUBERNETES_SERVICE_HOST")) and _is_file(_ACCOUNT / "token")


async def load(context: str = "") -> Access:
    """Read the credentials.

    Called again when the server no longer believes them: exec plug-ins run again, and files
    that were replaced are read anew.

    Args:
        context: Of the kubeconfig; "" means its current one.

    Raises:
        ClusterFault: There are none, or they cannot be read; names the file.
    """
    files = kubeconfigs()
    if files:
        return await _of_files(files, context)
    if _in_cluster():
        if context:
            raise ClusterFault(
                f"there is no context {context}: this is a pod, and it has no kubeconfig.",
                "Leave %context and the setting out, or set KUBECONFIG.",
            )
        return _of_account()
    if named := _named():
        names = os.pathsep.join(map(str, named))
        raise ClusterFault(
            f"KUBECONFIG names {names}, and there is no such file.",
            "Correct it, or run the cell on this machine: %backend=local.",
        )
    raise ClusterFault(
        "no cluster is configured: there is no kubeconfig, and this is no pod.",
        "Set KUBECONFIG, or run the cell on this machine: %backend=local.",
    )


def _configuration() -> Configuration:
    from kubernetes.aio.client.configuration import Configuration

    made = Configuration()
    made.connection_pool_maxsize = 0  # a log stream a replica: no limit of our own
    # Python 3.13 asks for extensions that the authorities of many clusters lack. kubectl does not.
    made.disable_strict_ssl_verification = True
    return made


def _of_account() -> Access:
    """A pod's service account; the library reads its token again each minute."""
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader

    configuration = _configuration()
    loader: Any = InClusterConfigLoader(  # type: ignore[no-untyped-call]
        token_filename=str(_ACCOUNT / "token"), cert_filename=str(_ACCOUNT / "ca.crt")
    )
    try:
        loader.load_and_set(configuration)
    except Exception as error:  # a ConfigException, or what an unreadable file raises
        raise ClusterFault(
            f"the pod's service account cannot be used: {_first_line(error)}",
            "Is its token mounted? Set KUBECONFIG to use another identity.",
        ) from None
    namespace = _ACCOUNT / "namespace"
    own = namespace.read_text().strip() if _is_file(namespace) else ""
    return Access(configuration, own, "service account", "")


async def _of_files(files: list[Path], context: str) -> Access:
    shown = os.pathsep.join(map(str, files))
    contents = [(path, _read(path)) for path in files]
    # As kubectl has it: the first file that says something wins.
    current = next((text for _, one in contents if (text := one.get("current-context"))), "")
    name = context or str(current)
    try:
        known = [str(one["name"]) for _, content in contents for one in content["contexts"]]
        if name not in known:
            raise _no_context(name, known, shown)
        loader = _loader(contents, name)
        configuration = _configuration()
        if "exec" in loader._user:
            await _sign_in(loader)
        await loader.load_and_set(configuration)
        proxy = str(configuration.proxy or "")
        if proxy.partition("://")[0] not in ("", "http", "https"):
            raise ValueError("its proxy-url is neither http:// nor https://")
        namespace = loader.current_context["context"].get("namespace") or ""
    except ClusterFault:
        raise
    except Exception as error:  # the library raises whatever a broken file makes it trip over
        raise ClusterFault(
            f"the kubeconfig {shown} cannot be used: {_first_line(error)}",
            f"`kubectl config view --context={name}` shows what is in it.",
        ) from None
    return Access(configuration, str(namespace), f"context {name}", name)


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


async def _sign_in(loader: Any) -> None:
    """Run the user's plug-in, and give the loader what it answered."""
    from kubernetes.aio.config.kube_config import FileOrData

    answer = await sign_in.run(
        loader._user.value["exec"], loader._cluster.value, Path(loader._user.path).parent
    )
    if answer.token:
        loader.token = f"Bearer {answer.token}"
    if answer.certificate:
        pem = {"certificate": answer.certificate, "key": answer.key}

        def file(name: str) -> Any:
            return FileOrData(  # type: ignore[no-untyped-call]
                pem, None, data_key_name=name, base64_file_content=False
            ).as_file()

        loader.cert_file, loader.key_file = file("certificate"), file("key")

    async def done() -> bool:
        return True

    loader.load_from_exec_plugin = done


def _first_line(error: Exception) -> str:
    """The library's words up to the first thing that it quotes: that may be a token."""
    first = (str(error).strip().splitlines() or [""])[0]
    return re.split(r"[{\[]", first)[0].strip().rstrip(".") or type(error).__name__
