"""Who asks a registry: from the files and helpers that docker and podman use.

https://github.com/docker/cli/blob/master/cli/config/configfile/file.go and
https://github.com/containers/image/blob/main/docs/containers-auth.json.5.md
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ciao_kernel.errors import RegistryFault
from ciao_kernel.oci.reference import Reference

_HUB_KEYS = ("https://index.docker.io/v1/", "index.docker.io", "registry-1.docker.io")
_HELPER_SECONDS = 30
_TOKEN_USER = "<token>"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password, or a token that buys tokens. Never shown."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def find(image: Reference, environment: Mapping[str, str] | None = None) -> Credentials | None:
    """Look for the credentials of an image's registry, in the order of podman, then docker.

    Raises:
        RegistryFault: A file or a helper is broken; names it.
    """
    for path in _files(os.environ if environment is None else environment):
        if (config := _read(path)) and (found := of(config, image, str(path))):
            return found
    return None


def of(config: Mapping[str, Any], image: Reference, source: str) -> Credentials | None:
    """Look in one configuration: a file's, or that of a Secret.

    Args:
        config: As ``config.json`` holds it.
        image: Whose registry is asked.
        source: Of the configuration, for messages.

    Raises:
        RegistryFault: An entry cannot be read, or its helper fails.
    """
    helpers = config.get("credHelpers")
    helper = helpers.get(image.registry) if isinstance(helpers, dict) else None
    helper = helper or config.get("credsStore")
    if isinstance(helper, str) and helper and (found := _ask(helper, image, source)):
        return found
    entries = config.get("auths")
    if not isinstance(entries, dict):
        return None
    for key in _keys(image):
        for name, entry in entries.items():
            if _normal(str(name)) == key and isinstance(entry, dict):
                return _entry(entry, f"{source}, entry {name}")
    return None


def _files(variables: Mapping[str, str]) -> list[Path]:
    home = Path(variables.get("HOME") or "~").expanduser()
    named = [variables.get("REGISTRY_AUTH_FILE")]
    if run := variables.get("XDG_RUNTIME_DIR"):
        named.append(f"{run}/containers/auth.json")
    named.append(str(home / ".config" / "containers" / "auth.json"))
    docker = variables.get("DOCKER_CONFIG") or str(home / ".docker")
    named.append(f"{docker}/config.json")
    return [Path(path) for path in named if path]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise RegistryFault(
            f"the registry credentials in {path} cannot be read: {why}.",
            "`docker login` writes that file; mend or remove it.",
        ) from None
    return found if isinstance(found, dict) else None


def _keys(image: Reference) -> list[str]:
    """Under what an entry may stand: podman's may name a repository, docker's name the host."""
    parts = [image.registry, *image.repository.split("/")]
    scoped = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return [*scoped, *(map(_normal, _HUB_KEYS) if image.registry == "docker.io" else ())]


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
    if entry.get("username"):
        return Credentials(str(entry["username"]), str(entry.get("password") or ""))
    if not entry.get("auth"):
        return None
    try:
        both = base64.b64decode(str(entry["auth"]), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise RegistryFault(
            f"the credentials of {source} are no base64.", "`docker login` writes them anew."
        ) from None
    user, _, password = both.partition(":")
    return Credentials(user, password.rstrip("\0"))


def _ask(helper: str, image: Reference, source: str) -> Credentials | None:
    """Ask ``docker-credential-NAME``; it answers with an error where it has nothing."""
    server = _HUB_KEYS[0] if image.registry == "docker.io" else image.registry
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=server,
            capture_output=True,
            text=True,
            timeout=_HELPER_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise RegistryFault(
            f"{source} names the credential helper {program}, which is not on the PATH.",
            "Install it, or take it out of that file.",
        ) from None
    except subprocess.TimeoutExpired:
        raise RegistryFault(
            f"{program} did not answer within {_HELPER_SECONDS} s.",
            f"Try it: echo {server} | {program} get",
        ) from None
    if done.returncode:
        return None
    try:
        found = json.loads(done.stdout)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError):
        raise RegistryFault(
            f"{program} answered with something that is no credentials.",
            f"Try it: echo {server} | {program} get",
        ) from None
    if user == _TOKEN_USER:
        return Credentials(identity_token=secret)
    return Credentials(user, secret)
