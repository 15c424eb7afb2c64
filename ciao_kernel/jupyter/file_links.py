"""Links from an output to files and folders that JupyterLab can open.

A page reaches only files below the root folder of its server. The server describes itself in a
runtime file, named after its process (``ServerApp.write_server_info_file`` of Jupyter Server). It
is the parent of its kernels (``JPY_PARENT_PID``, set by jupyter_client) and tells each kernel its
notebook (``JPY_SESSION_NAME``, set by Jupyter Server's session manager). A kernel without such a
server, as under nbclient or a gateway, gets no links.
"""

from __future__ import annotations

import functools
import json
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class FileLinks:
    """Links for the outputs of one notebook.

    Args:
        root: Root folder of the server.
        folder: Folder of the notebook, relative to the root.
        base_url: Path of the server's address, ``/`` or ``/user/ada/``.
    """

    root: str
    folder: str
    base_url: str

    def file(self, path: str) -> str:
        """Return a link to a file, or "" if the page cannot open it.

        The link is relative to the notebook's folder: JupyterLab resolves such links of an output
        and opens the file in a tab of its own.
        """
        below = _below_root(self.root, path)
        return quote(posixpath.relpath(below, self.folder)) if below else ""

    def directory(self, path: str) -> str:
        """Return a link to a folder in JupyterLab's file browser, or "" if it cannot show it.

        A relative link does not work for folders: JupyterLab would open them as files.
        """
        below = _below_root(self.root, path)
        return f"{self.base_url}lab/tree/{quote(below)}" if below else ""


def file_links(environment: Mapping[str, str], runtime: Path) -> FileLinks | None:
    """Return the links for this kernel's notebook, or None without a server that is known.

    Args:
        environment: The kernel's environment variables.
        runtime: Folder of Jupyter's runtime files.
    """
    server, notebook = environment.get("JPY_PARENT_PID", ""), environment.get("JPY_SESSION_NAME")
    if not (server.isdecimal() and notebook):
        return None
    try:
        found = json.loads((runtime / f"jpserver-{server}.json").read_text("utf-8"))
        root, base_url = found["root_dir"], found["base_url"]
    except (OSError, ValueError, KeyError, TypeError):  # another kind of parent
        return None
    if not (isinstance(root, str) and isinstance(base_url, str)):
        return None
    folder = os.path.relpath(Path(root, notebook).parent, root)
    if Path(folder).parts[:1] == (os.pardir,) or base_url[:1] != "/" or base_url[:2] == "//":
        return None  # a runtime file of another machine, where the process id means something else
    return FileLinks(root, folder, base_url)


def kernel_file_links() -> FileLinks | None:
    """Return the links for the notebook of this process."""
    from jupyter_core.paths import jupyter_runtime_dir

    return file_links(os.environ, Path(jupyter_runtime_dir()))


@functools.lru_cache(maxsize=1024)  # the table asks again at each redraw
def _below_root(root: str, path: str) -> str:
    """Return a path relative to the root; "" if the server does not serve it.

    By default, Jupyter Server serves no hidden files (``ContentsManager.allow_hidden``).
    """
    if not Path(path).is_absolute():
        return ""
    below = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    # Also "..", outside the root, and the root itself, whose only part is ".".
    parts = below.split("/")
    return "" if any(part.startswith(".") for part in parts) else below
