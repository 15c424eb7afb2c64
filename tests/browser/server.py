"""JupyterLab or Notebook as a process, with ciao as pip has installed it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import nbformat

from tests.helpers.installed import Environment
from tests.helpers.kernels import Place
from tests.helpers.servers import Served, free_port

Home = Literal["lab", "notebook"]

_MODULES = {"lab": "jupyterlab", "notebook": "notebook"}
_CLASSES = {"lab": "LabApp", "notebook": "JupyterNotebookApp"}
# No questions and no news: both cover the page. Offers of Tab count also where they take more than
# a second, as on a busy machine.
_SETTINGS: dict[str, dict[str, object]] = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/completer-extension:manager": {"providerTimeout": 30_000},
}


class Server(Served):
    """A front end's server, on a user's folders.

    Args:
        place: Whose server it is; notebooks are in ``place.work``.
        environment: Where ciao is installed; its Python runs the server.
        home: Which front end.
        options: Further ones of the command line, as ``--GatewayClient.url=…``.
        env: Variables in addition to the place's.
    """

    def __init__(
        self,
        place: Place,
        environment: Environment,
        home: Home = "lab",
        options: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.place, self.home = place, home
        self.url = f"http://127.0.0.1:{free_port()}"
        self.token = uuid.uuid4().hex
        self.log = place.folder / f"{home}.log"
        settings = place.folder / "settings"
        for extension, values in _SETTINGS.items():
            file = settings / f"{extension.replace(':', '/')}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))
        name = _CLASSES[home]
        command = [
            *(str(environment.python), "-m", _MODULES[home], "--no-browser", "--allow-root"),
            *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.url.rpartition(':')[2]}"),
            *("--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}"),
            f"--ServerApp.root_dir={place.work}",
            f"--{name}.expose_app_in_browser=True",
            *options,
        ]
        own = {
            "HOME": str(place.folder),
            "JUPYTER_PATH": environment.jupyter_path,
            "JUPYTERLAB_DIR": str(Path(sys.prefix, "share/jupyter/lab")),
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env={**place.env, **own, **(env or {})},
                cwd=place.work,
                stdout=output,
                stderr=output,
            )

    def write(self, name: str, cells: list[str], kernel: str = "ciao") -> Path:
        """Write a notebook with these code cells into the user's folder."""
        made = nbformat.v4.new_notebook(
            metadata={"kernelspec": {"name": kernel, "display_name": kernel}}
        )
        made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        path = self.place.work / name
        nbformat.write(made, path)
        return path

    def address(self, notebook: str | None = None) -> str:
        """Address of a notebook's page, or of the launcher (Notebook: the list of files)."""
        folder = "lab" if self.home == "lab" else "tree"
        if notebook is not None:
            folder = "lab/tree" if self.home == "lab" else "notebooks"
        path = f"{folder}/{urllib.parse.quote(notebook or '')}".rstrip("/")
        return f"{self.url}/{path}?token={self.token}&reset"


@contextlib.contextmanager
def serving(*arguments: Any, **options: Any) -> Iterator[Server]:
    """A :class:`Server` for as long as the block runs; arguments as there."""
    server = Server(*arguments, **options)
    try:
        server.wait_ready()
        yield server
    finally:
        server.close()
