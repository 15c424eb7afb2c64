"""notebooks/frameworks.ipynb as it stands, on clusters of three kinds.

The user has exactly the Roles of deploy/rbac that such a cluster asks for, and sets no API: what
the cluster serves decides.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faults.absent import Absent
from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, TRAIN, made, rules
from tests.e2e.jobs.test_kernel import environment
from tests.helpers import frameworks_notebook
from tests.helpers.frameworks_notebook import RANKS

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("training"),  # one at a time: two starve each other
    pytest.mark.usefixtures(
        "with_frameworks", "with_jax", "with_xgboost", "with_paddle", "with_mpi"
    ),
]
OPERATOR, TRAINER = "kubeflow.org", "trainer.kubeflow.org"
"""The groups of the API that a cluster has with either."""
KINDS = "tfjobs,pytorchjobs,jaxjobs,xgboostjobs,paddlejobs,mpijobs,jobs.batch"


def trains(
    cluster: Cluster,
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
    lacks: tuple[str, ...],
    rights: list[Rule],
) -> None:
    """Run the notebook on a cluster without some groups of the API.

    Args:
        cluster: The cluster.
        namespace: Where the jobs run.
        tmp_path: Of the test.
        monkeypatch: For the kernel's environment.
        figure: Keeps the seconds of each cell.
        lacks: The groups that are not served.
        rights: Those of the user.
    """
    team = made(namespace, tmp_path, monkeypatch, rights)
    images = {name.partition(",")[0]: name.partition(",")[0] for name in RANKS}
    images["custom"] = "tools"
    team.images.update({name: namespace.cluster.image(image) for name, image in images.items()})
    with Absent(cluster.at, *lacks) as narrowed:
        own = narrowed.kubeconfig(tmp_path / "narrowed", Path(os.environ["KUBECONFIG"]))
        for name, value in {**environment(team), "KUBECONFIG": str(own)}.items():
            monkeypatch.setenv(name, value)
        ran = frameworks_notebook.run(tmp_path / "notebooks", patience=280)
    figure(", ".join(f"{name} {one.seconds:.0f} s" for name, one in ran.items()))
    assert list(ran) == list(RANKS)
    wrong = {name: said for name, ranks in RANKS.items() if (said := ran[name].wrong(ranks))}
    assert wrong == {}


def kinds(namespace: Namespace) -> Counter[str]:
    """The kinds of the namespace's jobs, and how many."""
    return Counter(one["kind"] for one in namespace.get(KINDS)["items"])


@pytest.mark.second("docs")
def test_with_the_training_operator_only(
    local_cluster: Cluster,
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    """For python and custom it has no kind: they become Indexed Jobs."""
    rights = [*rules(), *rules(JOBS)]
    trains(local_cluster, namespace, tmp_path, monkeypatch, figure, (TRAINER,), rights)
    one_each = dict.fromkeys(("TFJob", "JAXJob", "XGBoostJob", "PaddleJob", "MPIJob"), 1)
    assert kinds(namespace) == {**one_each, "PyTorchJob": 2, "Job": 2}


@pytest.mark.second("operators")  # which raises Trainer
def test_with_kubeflow_trainer_only(
    trainer: None,
    local_cluster: Cluster,
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    trains(local_cluster, namespace, tmp_path, monkeypatch, figure, (OPERATOR,), rules(TRAIN))
    assert len(namespace.get("trainjobs")["items"]) == len(RANKS)


@pytest.mark.second("docs")
def test_with_neither(
    local_cluster: Cluster,
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    lacks = (OPERATOR, TRAINER)
    trains(local_cluster, namespace, tmp_path, monkeypatch, figure, lacks, rules(JOBS))
    assert kinds(namespace) == {"Job": len(RANKS)}
