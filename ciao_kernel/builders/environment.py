"""Dockerfiles for environments that directives describe: packages of Debian, conda and pip."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ciao_kernel.delivery.packages import pip_settings
from ciao_kernel.delivery.packages.requirements import Requirements

PLACE = "/opt/ciao"
"""Folder of an image with the requirements that it was built from."""
REQUIREMENTS_FOLDER = "ciao-asked"
"""Folder of a context with requirements from directives; its name hides no file of the user."""
_CONF = "/etc/pip.conf"
"""Where the pod has the file of the Secret."""
_PIP = {
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # else pip refuses the Python of a Linux distribution
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_CACHE_DIR": "1",
    "PIP_NO_INPUT": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_CONDA = (
    "if command -v micromamba; then micromamba install --yes --name base --file {0} "
    "&& micromamba clean --all --yes; "
    "elif command -v mamba; then mamba env update --name base --file {0} "
    "&& mamba clean --all --yes; "
    "elif command -v conda; then conda env update --name base --file {0} "
    "&& conda clean --all --yes; "
    "else echo 'ciao: there is no conda in this image' >&2; exit 64; fi"
)
_ROOT = ("", "0", "root", "0:0", "root:root")
"""Users of an image that mean root."""


def environment(
    base: str,
    wanted: Requirements,
    apt: Sequence[str] = (),
    conda: bool = False,
    *,
    user: str = "",
    python: str = "python3",
    secret: bool = False,
) -> str:
    """Write the Dockerfile of an environment.

    Args:
        base: The base image, by its digest.
        wanted: Requirements for pip; their files are in the context.
        apt: Debian packages.
        conda: True if there is an ``environment.yml`` in the context.
        user: User of the base image.
        python: Interpreter of the replicas.
        secret: As for :func:`install`.
    """
    lines = list[str]()
    if apt:
        names = " ".join(shlex.quote(name) for name in apt)
        lines.append(
            "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes "
            f"--no-install-recommends {names} && rm -rf /var/lib/apt/lists/*"
        )
    if conda:
        file = f"{PLACE}/environment.yml"
        lines += [
            f"COPY {REQUIREMENTS_FOLDER}/environment.yml {file}",
            f"RUN {_CONDA.format(file)}",
        ]
    lines += install(wanted, python, secret=secret)
    return "".join(f"{line}\n" for line in (f"FROM {base}", *as_root(lines, user)))


def as_root(lines: Sequence[str], user: str) -> list[str]:
    """Run the instructions as root, then switch back to the user."""
    if not lines or user in _ROOT:
        return list(lines)
    return ["USER root", *lines, f"USER {user}"]


def _with_password(index: str) -> str:
    """Return commands that set ``index`` to the address, as the ``pip.conf`` of the Secret has it.

    That one may have a user and a password, which only the pod knows: they are in no file and no
    layer of the image. The address in a variable would else take the place of that one.
    """
    scheme, _, rest = index.rstrip("/").partition("://")
    form = f"{shlex.quote(f'{scheme}://')}*{shlex.quote(f'@{rest}')}"
    values = f"sed 's/^[A-Za-z_-]*[[:space:]]*[=:]//' {_CONF}"
    return (
        f"index={shlex.quote(index)}; for one in $({values}); "
        f'do case "$one" in {form}|{form}/) index=$one;; esac; done; '
    )


def install(wanted: Requirements, python: str = "python3", *, secret: bool = False) -> list[str]:
    """Return the instructions that install with pip.

    Args:
        wanted: Requirements for pip.
        python: Interpreter of the replicas.
        secret: True if a Secret brings a ``pip.conf``, which may name more sources than the index
            of the cell.
    """
    if not wanted.packages:
        return []
    names = [f"{REQUIREMENTS_FOLDER}/requirements.txt"]
    names += [f"{REQUIREMENTS_FOLDER}/constraints.txt"] if wanted.constraints else []
    variables, first = dict(_PIP), ""
    if wanted.index and not secret:  # the base may name more sources
        variables |= {"PIP_INDEX_URL": wanted.index, **pip_settings.ONLY}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    if wanted.index and secret:
        first, settings = _with_password(wanted.index), f'{settings} PIP_INDEX_URL="$index"'
    held = f" -c {PLACE}/constraints.txt" if wanted.constraints else ""
    return [
        f"COPY {' '.join(names)} {PLACE}/",
        f"RUN {first}{settings} {shlex.quote(python)} -m pip install "
        f"-r {PLACE}/requirements.txt{held}",
    ]
