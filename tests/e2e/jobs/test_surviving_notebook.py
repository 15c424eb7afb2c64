"""notebooks/surviving.ipynb as it stands: a pod that trains is evicted, as by a drained node.

The user has the Role of deploy/rbac, and the one for files of pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import EXEC, made, rules
from tests.e2e.jobs.test_kernel import environment
from tests.e2e.jobs.test_surviving import lose
from tests.helpers import surviving_notebook, tensorboard


@tensorboard.needs_tensorboard
@pytest.mark.second("docs")
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("training")  # one at a time: two starve each other
@pytest.mark.usefixtures("with_frameworks")
@pytest.mark.parametrize("claim", ["training"], indirect=True)
def test_a_training_survives_the_eviction_of_its_pod(
    namespace: Namespace,
    claim: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    """On this machine: tests/integration/notebooks."""
    team = made(namespace, tmp_path, monkeypatch, [*rules(), *rules(EXEC)])
    team.images["tensorflow"] = namespace.cluster.image("tensorflow")
    for name, value in environment(team).items():
        monkeypatch.setenv(name, value)
    pod = f"{surviving_notebook.JOB}-{surviving_notebook.REPLICA}"

    async def evict() -> None:
        await lose(team, pod, "evict")

    figure(asyncio.run(surviving_notebook.survives(tmp_path / "notebooks", evict, patience=300)))
    assert claim == "training"
