"""Finds the address by which a page of the notebook's server reaches a port of this machine.

jupyter-server-proxy serves ``{base_url}proxy/PORT/``. The server does not tell its kernels whether
it has that extension, and it may run in another environment. But extensions are enabled by files
(``jupyter_server_config.d``), and those of the server's environment are beside its interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ciao_kernel.jupyter.file_links import FileLinks, kernel_file_links
from ciao_kernel.session.tensorboard.board import PORT, Reach

_EXTENSION = "jupyter_server_proxy"
_CONFIG = "jupyter_server_config"
_ADDRESS = "TENSORBOARD_PROXY_URL"
"""Variable of TensorBoard's own extension for notebooks; administrators of hubs set it."""


def reach(
    environment: Mapping[str, str], links: FileLinks | None, folders: Sequence[Path]
) -> Reach:
    """Return how pages reach a port.

    Args:
        environment: The kernel's environment variables.
        links: What is known about the server; None if it is not this machine's.
        folders: Folders with the configuration of the server.
    """
    if PORT in (named := environment.get(_ADDRESS, "")) and named.startswith(("/", "http")):
        return Reach(named)
    if environment.get("KERNEL_USERNAME"):  # set by gateways
        return Reach(remote=True)
    if links is not None and any(map(_enables, folders)):
        return Reach(f"{links.base_url}proxy/{PORT}/")
    return Reach()


def kernel_reach() -> Reach:
    """Return how pages reach a port of this kernel's machine."""
    return reach(os.environ, kernel_file_links(), folders(os.environ))


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders with the configuration of the server that started this kernel.

    Args:
        environment: The kernel's environment variables; most are the server's.
    """
    from jupyter_core.paths import SYSTEM_CONFIG_PATH, jupyter_config_dir

    named = environment.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    found = [Path(one) for one in (*named, jupyter_config_dir(), *SYSTEM_CONFIG_PATH) if one]
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{environment.get('JPY_PARENT_PID', '')}/cmdline").read_bytes()
        interpreter = Path(os.fsdecode(command.partition(b"\0")[0]))
        if interpreter.is_absolute():
            found.append(interpreter.parent.parent / "etc" / "jupyter")
    return found


def _enables(folder: Path) -> bool:
    """Return whether a folder's files enable the extension."""
    files = [folder / f"{_CONFIG}.json", *sorted((folder / f"{_CONFIG}.d").glob("*.json"))]
    for file in files:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["ServerApp"]["jpserver_extensions"].get(_EXTENSION) is True:
                return True
    return False
