"""The framework of docs/extending.md, installed as anybody would, here and on the cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.namespace import Namespace
from tests.helpers.installed import ROOT, Environment
from tests.integration.docs.blocks import Block, read

CELL = """# %framework=lightgbm
# %worker=2
# %name=ours
import os, socket, time

names = ("MACHINES", "WORLD_SIZE", "RANK")
print(*[os.environ[name] for name in names], flush=True)
host, port = os.environ["MACHINES"].split(",")[0].split(":")
if os.environ["RANK"] == "0":
    server = socket.create_server(("", int(port)))
    for _ in range(2):
        server.accept()
while os.environ["RANK"] != "0":
    try:
        socket.create_connection((host, int(port)), 5)
        break
    except OSError:
        time.sleep(0.1)
"""
"""The master, whose success is the job's, waits until both workers have said what they are."""
SETUP = """[metadata]
name = my-package
version = 1

[options]
packages = my_package

"""


def blocks() -> list[Block]:
    """The page's module and its entry point."""
    found = read(ROOT / "docs" / "extending.md")
    return [one for one in found if one.kind == "by" and one.word.endswith(Path(__file__).name)]


class Installed:
    """The package in an environment of its own, as that of a user of a namespace."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        module, entry = blocks()
        package = folder / "package"
        (package / "my_package").mkdir(parents=True)
        (package / "my_package" / "__init__.py").touch()
        (package / "my_package" / "lightgbm.py").write_text(module.text)
        (package / "setup.cfg").write_text(SETUP + entry.text)
        (package / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools"]\n')
        self._own = Environment(folder / "env")
        self._own.pip("install", "--no-deps", "--no-index", "--no-build-isolation", package)
        (self._own.packages / "ciao.pth").write_text(f"{ROOT}\n")
        (folder / "cell.py").write_text(CELL)
        self._folder = folder
        self._settings = {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "CIAO_STORAGE": str(folder / "storage"),
            "CIAO_NAMESPACE": namespace.name,
            "CIAO_CPU_REQUEST": "10m",
            "CIAO_IMAGES": f"lightgbm={namespace.cluster.image('tools')}",
            "KUBECONFIG": namespace.cluster.environment["KUBECONFIG"],
        }

    def run(self, *options: str) -> None:
        """Run the cell; each replica says the same addresses, the number of all and its rank."""
        done = subprocess.run(
            [str(self._own.python), "-m", "ciao_kernel.cli", "run", "cell.py", *options],
            cwd=self._folder, env=os.environ | self._own.env | self._settings,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        lines = sorted(
            line for line in done.stdout.splitlines() if "-0] " in line or "-1] " in line
        )
        told = [line.split(" ", 1)[1].split() for line in lines]
        assert [one[1:] for one in told] == [["3", "0"], ["3", "1"], ["3", "2"]], lines
        (machines,) = {machines for machines, *_ in told}
        assert len(set(machines.split(","))) == 3
        assert "$" not in machines


@pytest.mark.stands_for("docs")
def test_a_framework_in_forty_lines(namespace: Namespace, tmp_path: Path) -> None:
    installed = Installed(namespace, tmp_path)
    installed.run("--backend", "local")
    installed.run()
    assert len(namespace.get("xgboostjobs")["items"]) == 1


@pytest.mark.second("operators")
def test_the_same_without_the_operator(trainer: None, namespace: Namespace, tmp_path: Path) -> None:
    """Its manifest is not used then."""
    installed = Installed(namespace, tmp_path)
    installed.run("--api", "job")
    installed.run("--api", "trainer")
    kinds = namespace.get("trainjobs,jobs.batch,xgboostjobs")["items"]
    ours = [one["kind"] for one in kinds if not one["metadata"].get("ownerReferences")]
    assert sorted(ours) == ["Job", "TrainJob"]
