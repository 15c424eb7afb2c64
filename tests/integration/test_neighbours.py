"""ciao installs beside the field's own packages: pip finds versions that suit all.

pip's resolver is asked for their present releases: without a lower bound it would answer with one
of years ago, which required nothing yet.
"""

from __future__ import annotations

import os
import venv
from pathlib import Path

import pytest

from tests.helpers import pip_index
from tests.helpers.installed import build, run
from tests.helpers.once import once
from tests.helpers.pip_index import PIP

pytestmark = [
    pytest.mark.second("gateway"),
    pytest.mark.index,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

GATEWAY = "jupyter_enterprise_gateway>=3.3"
NEIGHBOURS = [
    "kfp>=2.17",
    "kubeflow>=0.5",
    "kubeflow-training>=1.9.4",
    "ray>=2.50",
    "skypilot>=0.14",
    "jupyterhub>=5",
    GATEWAY,
]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (found,) = (once(tmp_path_factory, "wheel", make) / "dist").glob("*.whl")
    return found


def make(folder: Path) -> None:
    build(folder, "--wheel")


@pytest.fixture(scope="session")
def index() -> None:
    pip_index.skip_unless_reached()


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_pip_finds_versions_that_suit_both(neighbour: str, wheel: Path, tmp_path: Path) -> None:
    run(*PIP, "install", "--dry-run", "--ignore-installed", wheel, neighbour, cwd=tmp_path)


CELLS = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="ciao")
client.execute_interactive("print('plain')", timeout=120)
job = "%framework=tensorflow\\n%worker=2\\nimport os\\nprint('TF_CONFIG' in os.environ)"
answer = client.execute_interactive(job, timeout=120)
print(answer["content"]["status"])
manager.shutdown_kernel()
"""


@pytest.mark.usefixtures("index")
def test_a_kernel_runs_beside_enterprise_gateway(wheel: Path, tmp_path: Path) -> None:
    """It requires the oldest jupyter_client and pyzmq of all, older ones than tests/oldest.txt."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    # On PYTHONPATH may be a checkout, which pip takes for an installed package.
    env = {k: v for k, v in os.environ.items() if "JUPYTER" not in k and k != "PYTHONPATH"}
    command = ("--python", python, "install", "--quiet", wheel, GATEWAY)
    run(*PIP, *command, cwd=tmp_path, env=env)
    env |= {"HOME": str(tmp_path), "CIAO_BACKEND": "local"}
    said = run(python, "-c", CELLS, cwd=tmp_path, env=env).splitlines()
    assert said[0] == "plain"
    assert said[-1] == "ok"
