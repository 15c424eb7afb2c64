"""The builder of docs/extending.md, installed as anybody would, builds a cell for the cluster."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.images.conftest import Maker
from tests.e2e.images.copies import copied
from tests.helpers.installed import ROOT, Environment

pytestmark = pytest.mark.second("docs")
CELL = """#%framework=tensorflow
#%worker=1
#%builder=locked
import os
print(os.environ["LOCK"], os.getcwd())
"""


def blocks() -> tuple[str, str]:
    """The page's module and its pyproject.toml."""
    text = (ROOT / "docs" / "extending.md").read_text()
    section = text.partition("\n## A builder\n")[2].partition("\n## ")[0]
    found = dict(re.findall(r"^```(python|toml)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE))
    return found["python"], found["toml"]


def test_a_builder_in_forty_lines(maker: Maker, tmp_path: Path) -> None:
    module, project = blocks()
    assert len(module.splitlines()) <= 40
    package = tmp_path / "package"
    package.mkdir()
    (package / "team_ciao.py").write_text(module)
    (package / "pyproject.toml").write_text(project)
    own = Environment(tmp_path / "env")
    own.pip("install", "--no-deps", "--no-index", "--no-build-isolation", package)
    (own.packages / "ciao.pth").write_text(f"{ROOT}\n")
    host, repository = maker.cluster.at.registry, f"{maker.repository}/python"
    lock = b"numpy==2.3.4\n"
    tag = f"lock-{hashlib.sha256(lock).hexdigest()[:12]}"
    copied(maker.cluster, "python:3.13", f"{repository}:{tag}", Env=["PATH=/usr/bin", "LOCK=ours"])
    folder = maker.team.folder
    (folder / "cell.py").write_text(CELL)
    settings = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "CIAO_STORAGE": str(maker.team.storage),
        "CIAO_NAMESPACE": maker.team.namespace.name,
        "CIAO_CPU_REQUEST": "10m",
        "CIAO_IMAGES": f"tensorflow={host}/{repository}:latest",
        "CIAO_REGISTRY": f"{host}/{maker.repository}/cells",
        "CIAO_PLAIN_REGISTRIES": host,
    }

    def run() -> subprocess.CompletedProcess[str]:
        command = [str(own.python), "-m", "ciao_kernel.cli", "run", "cell.py"]
        return subprocess.run(
            command, cwd=folder, env=own.env | settings, capture_output=True, text=True
        )

    without = run()
    assert without.returncode != 0
    assert "requirements.lock cannot be read: No such file" in without.stdout + without.stderr
    (folder / "requirements.lock").write_bytes(lock)
    ended = run()

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "ours /ciao" in ended.stdout
    assert f"the packages are those of {host}/{repository}:{tag}" in ended.stdout + ended.stderr
