"""Credentials for a registry, from the files and helpers of docker and podman.

https://github.com/docker/cli/blob/master/cli/config/configfile/file.go and
https://github.com/containers/image/blob/main/docs/containers-auth.json.5.md
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel.errors import RegistryFault
from ciao_kernel.home_folder import home
from ciao_kernel.oci.reference import Reference

_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")
_HELPER_SECONDS = 30
_HELPER = re.compile(r"[\w.-]+", re.ASCII)
_TOKEN_USER = "<token>"
_NOTHING = "credentials not found"
"""Start of a helper's output if it has no credentials for the registry."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password, or an identity token that is exchanged for tokens. Never shown.

    Args:
        user: Name of the user.
        password: Password of the user.
        identity_token: Token in place of both.
        instead_of: Secret that the cell names, but that these come before; "" if there is none.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    instead_of: str = ""


def find(image: Reference, environment: Mapping[str, str] | None = None) -> Credentials | None:
    """Find the credentials of an image's registry: first in podman's files, then in docker's.

    Raises:
        RegistryFault: A file or a helper is broken; the message names it.
    """
    variables = os.environ if environment is None else environment
    for path in _files(variables):
        if (config := _read(path)) is None:
            continue
        found, fault = _from_helper(config, image, str(path), variables)
        if found := found or of(config, image, str(path)):
            return found
        if fault:
            raise fault
    return None


def of(config: Mapping[str, Any], image: Reference, source: str) -> Credentials | None:
    """Find credentials in one configuration, of a file or a Secret, without running its helpers.

    Args:
        config: Contents of a ``config.json``.
        image: Image whose registry needs the credentials.
        source: Name of the configuration, for messages.

    Raises:
        RegistryFault: An entry cannot be read.
    """
    entries = config.get("auths")
    if not isinstance(entries, dict):
        return None
    for key in keys(image):
        for name, entry in entries.items():
            same = _normal(str(name)) == key and isinstance(entry, dict)
            # Docker leaves an empty entry if a helper stores the credentials.
            if same and (found := _entry(entry, f"{source}, entry {name}")):
                return found
    return None


def keys(image: Reference) -> list[str]:
    """Return the possible keys of an entry: podman's may name a repository, docker's the host.

    They are without scheme and version; the first that an entry has counts.
    """
    parts = [image.registry, *image.repository.split("/")]
    scoped = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return [*scoped, *(map(_normal, _HUB_KEYS) if image.registry == "docker.io" else ())]


def _from_helper(
    config: Mapping[str, Any], image: Reference, source: str, variables: Mapping[str, str]
) -> tuple[Credentials | None, RegistryFault | None]:
    """Run a file's helper for this registry or for all; return its credentials or its fault."""
    helpers = config.get("credHelpers")
    named = helpers if isinstance(helpers, dict) else {}
    keys = (image.registry, *(_HUB_KEYS if image.registry == "docker.io" else ()))
    own = (named[key] for key in keys if named.get(key))
    helper = next(own, None) or config.get("credsStore")
    if not helper:
        return None, None
    try:
        return _ask(str(helper), image, source, variables), None
    except RegistryFault as fault:
        return None, fault


def _files(variables: Mapping[str, str]) -> list[Path]:
    folder = home(variables)
    named = [variables.get("REGISTRY_AUTH_FILE")]
    if run := variables.get("XDG_RUNTIME_DIR"):
        named.append(f"{run}/containers/auth.json")
    named.append(str(folder / ".config" / "containers" / "auth.json"))
    docker = variables.get("DOCKER_CONFIG") or str(folder / ".docker")
    named.append(f"{docker}/config.json")
    return [Path(path) for path in named if path]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if text.strip() else {}
        if not isinstance(found, dict):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not a JSON object"
        raise RegistryFault(
            f"the registry credentials in {path} cannot be read: {why}.",
            "`docker login` writes that file; fix or remove it.",
        ) from None
    return found


def _normal(key: str) -> str:
    for scheme in ("https://", "http://"):
        key = key.removeprefix(scheme)
    key = key.rstrip("/")
    for version in ("/v1", "/v2"):
        key = key.removesuffix(version)
    return key


def _entry(entry: Mapping[str, Any], source: str) -> Credentials | None:
    if token := entry.get("identitytoken"):
        return Credentials(identity_token=str(token))
    if entry.get("auth"):  # takes precedence, as for docker and the nodes
        try:
            both = base64.b64decode(str(entry["auth"]), validate=True).decode()
        except (ValueError, binascii.Error):
            raise RegistryFault(
                f"the credentials of {source} are not base64.", "`docker login` writes them again."
            ) from None
        user, _, password = both.partition(":")
        return Credentials(user, password.rstrip("\0"))
    if entry.get("username"):
        return Credentials(str(entry["username"]), str(entry.get("password") or ""))
    return None


def _ask(
    helper: str, image: Reference, source: str, variables: Mapping[str, str]
) -> Credentials | None:
    """Run ``docker-credential-NAME get``; None if it has no credentials."""
    server = _HUB_KEYS[0] if image.registry == "docker.io" else image.registry
    name = f"docker-credential-{helper}"
    program = shutil.which(name, path=variables.get("PATH")) if _HELPER.fullmatch(helper) else None
    if not program:
        raise RegistryFault(
            f"{source} names the credential helper {name}, which is not on the PATH.",
            "Install it, or remove it from that file.",
        )
    hint = f"Try it: echo {server} | {name} get"
    try:
        done = subprocess.run(
            [program, "get"],
            input=server.encode(),
            capture_output=True,
            timeout=_HELPER_SECONDS,
            check=False,
            env=dict(variables),
        )
    except subprocess.TimeoutExpired:
        raise RegistryFault(f"{name} did not answer within {_HELPER_SECONDS} s.", hint) from None
    except OSError as error:
        raise RegistryFault(f"{name} cannot be started: {error.strerror}.", hint) from None
    if done.returncode:
        if done.stdout.decode(errors="replace").strip().lower().startswith(_NOTHING):
            return None
        # Without its own output, which may contain secrets.
        raise RegistryFault(f"{name} failed with exit code {done.returncode}.", hint)
    try:
        found = json.loads(done.stdout)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RegistryFault(f"{name} returned something that is not credentials.", hint) from None
    if user == _TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(user, secret) if user else None
