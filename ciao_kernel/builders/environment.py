"""Dockerfiles for environments that directives describe: packages of Debian, conda and pip."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ciao_kernel.delivery.packages.requirements import Requirements

PLACE = "/opt/ciao"
"""Folder of an image with the requirements that it was built from."""
REQUIREMENTS_FOLDER = "ciao-asked"
"""Folder of a context with requirements from directives; its name hides no file of the user."""
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
) -> str:
    """Write the Dockerfile of an environment.

    Args:
        base: The base image, by its digest.
        wanted: Requirements for pip; their files are in the context.
        apt: Debian packages.
        conda: True if there is an ``environment.yml`` in the context.
        user: User of the base image.
        python: Interpreter of the replicas.
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
    lines += install(wanted, python)
    return "".join(f"{line}\n" for line in (f"FROM {base}", *as_root(lines, user)))


def as_root(lines: Sequence[str], user: str) -> list[str]:
    """Run the instructions as root, then switch back to the user."""
    if not lines or user in _ROOT:
        return list(lines)
    return ["USER root", *lines, f"USER {user}"]


def install(wanted: Requirements, python: str = "python3") -> list[str]:
    """Return the instructions that install with pip."""
    if not wanted.packages:
        return []
    names = [f"{REQUIREMENTS_FOLDER}/requirements.txt"]
    names += [f"{REQUIREMENTS_FOLDER}/constraints.txt"] if wanted.constraints else []
    variables = {**_PIP, **({"PIP_INDEX_URL": wanted.index} if wanted.index else {})}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    held = f" -c {PLACE}/constraints.txt" if wanted.constraints else ""
    return [
        f"COPY {' '.join(names)} {PLACE}/",
        f"RUN {settings} {shlex.quote(python)} -m pip install -r {PLACE}/requirements.txt{held}",
    ]
