"""The checkout that a reader of the documentation stands in, and what they install from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from tests.helpers.installed import ROOT, Environment
from tests.helpers.kernels import WAIT, Place
from tests.helpers.servers import Served, free_port


def copied(folder: Path) -> Path:
    """Copy the sources, with the environment of the running tests as the one that make has made.

    A copy, since builds write into the tree that they build.
    """
    left = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder, ignore=left)
    made = folder / ".venv"
    made.mkdir()
    for one in Path(sys.prefix).iterdir():
        if one.name in ("bin", "lib", "pyvenv.cfg", "share"):
            (made / one.name).symlink_to(one)
    for stamp in (".made", ".demo", ".test"):  # later than setup.cfg, so make does not install
        (made / stamp).touch()
    return folder


def installing(folder: Path, path: str) -> dict[str, str]:
    """Variables with which pip installs into a fresh environment, without any download.

    What the tests' own environment has counts as installed there, so an extra whose packages
    that lacks fails. That an index has them is what `make test` begins with.

    Args:
        folder: Where the environment is made.
        path: The reader's PATH; the environment's programs come before it.
    """
    made = Environment(folder)
    return {
        "PIP_PYTHON": str(made.python),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for "no isolation"
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PATH": os.pathsep.join([str(made.python.parent), path]),
        "JUPYTER_PATH": made.jupyter_path,
    }


class Lab(Served):
    """JupyterLab, started by a command of the documentation.

    Args:
        place: Whose it is.
        line: The command.
        folder: Where it is given.
    """

    def __init__(self, place: Place, line: str, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.token = uuid.uuid4().hex
        self.log = place.folder / "lab.log"
        options = " ".join(
            [
                *("--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"),
                *(f"--ServerApp.port={self.url.rpartition(':')[2]}", "--ServerApp.port_retries=0"),
                f"--IdentityProvider.token={self.token}",
            ]
        )
        command = f"{line} {options}"
        if line.startswith("make "):
            command = f"{line.partition('#')[0].strip()} LABFLAGS='{options}'"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", command], cwd=folder, env=place.env, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip

    def close(self) -> None:
        """End it; the shell or make before it too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(WAIT)
