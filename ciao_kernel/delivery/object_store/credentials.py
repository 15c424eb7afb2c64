"""Credentials for a bucket, from where the AWS CLI looks for them first.

https://docs.aws.amazon.com/cli/latest/topic/config-vars.html: variables, and then the profile in
the two files. Single sign-on, roles and the services of virtual machines are not asked.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ciao_kernel.errors import BackendError
from ciao_kernel.home_folder import home
from ciao_kernel.user_path import expanded

_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Credentials:
    """A pair of keys, a token if they are temporary, and the region. Keys are never shown."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    region: str = _REGION


def find(environment: Mapping[str, str]) -> Credentials:
    """Return the user's credentials.

    Args:
        environment: The variables.

    Raises:
        BackendError: There are none, or a file is broken.
        UsageError: A file is in a home folder that does not exist.
    """
    profile = environment.get("AWS_PROFILE") or "default"
    folder = home(environment) / ".aws"
    files = {
        "AWS_SHARED_CREDENTIALS_FILE": (folder / "credentials", profile),
        "AWS_CONFIG_FILE": (folder / "config", _section(profile)),
    }
    told: dict[str, str] = {}
    for name, (path, section) in files.items():
        told = {**_read(expanded(environment.get(name) or str(path)), section), **told}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    region = region or told.get("region") or _REGION
    if environment.get("AWS_ACCESS_KEY_ID"):
        told = {
            name: environment.get(name.upper(), "")
            for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        }
    key_id, secret = told.get("aws_access_key_id"), told.get("aws_secret_access_key")
    if not key_id or not secret:
        raise BackendError(
            f"no credentials for the bucket of outputStore were found (profile {profile}).",
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for the kernel, or write them to "
            "~/.aws/credentials, as for the AWS CLI.",
        )
    return Credentials(key_id, secret, told.get("aws_session_token", ""), region)


def _section(profile: str) -> str:
    return profile if profile == "default" else f"profile {profile}"


def _read(path: Path, section: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (configparser.Error, ValueError):
        # Its own message quotes lines, which may be keys.
        raise BackendError(f"{path} is not a file of profiles as the AWS CLI writes it.") from None
    return dict(parser[section]) if parser.has_section(section) else {}
