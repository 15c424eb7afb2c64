"""ciao as users get it: a wheel, and an environment in which pip has installed it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a command, return its stdout; a failure shows all that it wrote."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def build(folder: Path, *options: str) -> Path:
    """Build the package of a copy of the sources; return the folder with what was built.

    Without build isolation, because setuptools and wheel are in the dev extra: no download.

    Args:
        folder: An empty folder.
        options: For example ``--wheel``; without it the sdist, and the wheel made from it.
    """
    # A copy, since setuptools writes build/ and *.egg-info into the tree that it builds, and
    # takes stale modules from there into the next wheel.
    source, out = folder / "ciao", folder / "dist"
    outputs = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=outputs)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *options, source,
        cwd=source)  # fmt: skip
    return out


class Environment:
    """A virtual environment, fresh unless it was made before.

    Args:
        folder: Where it is, or is made.
    """

    def __init__(self, folder: Path) -> None:
        self.prefix = folder
        self.python = folder / "bin" / "python"
        self.env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "lib" / version / "site-packages"
        if not (folder / "pyvenv.cfg").exists():
            venv.create(folder, with_pip=False, symlinks=True)
            # The dependencies are those of the running tests, by a .pth file: their folder comes
            # after the environment's own, so what pip installs here wins, and nothing is
            # downloaded. (.pth files in *that* folder, such as the editable install's, are not
            # read.)
            (self.packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *arguments: str | Path) -> str:
        """Run pip for this environment."""
        # --python lets the outer pip work here: no pip to install, and none in the listing.
        return run(
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python),
            *arguments,
            cwd=self.prefix,
            env=self.env,
        )

    def install(self, wheel: Path) -> None:
        """Install a wheel, without what it depends on."""
        # --force-reinstall, because pip sees the shared folder's ciao-kernel of the same version.
        self.pip("install", "--no-deps", "--no-index", "--force-reinstall", wheel)

    def run(self, *arguments: str | Path) -> str:
        """Run this environment's Python."""
        return run(self.python, *arguments, cwd=self.prefix, env=self.env)

    @property
    def jupyter_path(self) -> str:
        """JUPYTER_PATH: this environment's kernels first, then all that the tests' own has."""
        return os.pathsep.join(str(Path(one, "share/jupyter")) for one in (self.prefix, sys.prefix))
