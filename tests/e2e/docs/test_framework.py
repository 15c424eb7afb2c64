"""The framework of docs/extending.md, installed as anybody would, here and on the cluster."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.namespace import Namespace
from tests.helpers.installed import ROOT, Environment
from tests.integration.docs.blocks import Block, read

pytestmark = pytest.mark.stands_for("docs")
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


def test_a_framework_in_forty_lines(namespace: Namespace, tmp_path: Path) -> None:
    module, entry = blocks()
    package = tmp_path / "package"
    (package / "my_package").mkdir(parents=True)
    (package / "my_package" / "__init__.py").touch()
    (package / "my_package" / "lightgbm.py").write_text(module.text)
    (package / "setup.cfg").write_text(SETUP + entry.text)
    (package / "pyproject.toml").write_text('[build-system]\nrequires = ["setuptools"]\n')
    own = Environment(tmp_path / "env")
    own.pip("install", "--no-deps", "--no-index", "--no-build-isolation", package)
    (own.packages / "ciao.pth").write_text(f"{ROOT}\n")
    (tmp_path / "cell.py").write_text(CELL)
    settings = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "CIAO_STORAGE": str(tmp_path / "storage"),
        "CIAO_NAMESPACE": namespace.name,
        "CIAO_CPU_REQUEST": "10m",
        "CIAO_IMAGES": f"lightgbm={namespace.cluster.image('tools')}",
        "KUBECONFIG": namespace.cluster.environment["KUBECONFIG"],
    }

    def run(*options: str) -> list[str]:
        done = subprocess.run(
            [str(own.python), "-m", "ciao_kernel.cli", "run", "cell.py", *options],
            cwd=tmp_path, env=os.environ | own.env | settings, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(line for line in done.stdout.splitlines() if "-0] " in line or "-1] " in line)

    for lines in (run("--backend", "local"), run()):
        told = [line.split(" ", 1)[1].split() for line in lines]
        assert [one[1:] for one in told] == [["3", "0"], ["3", "1"], ["3", "2"]], lines
        (machines,) = {machines for machines, *_ in told}
        assert len(set(machines.split(","))) == 3
        assert "$" not in machines
