"""notebooks/frameworks.ipynb as it stands, in each API: every framework trains its one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.faults.users import Rule
from tests.cluster.namespace import Namespace
from tests.e2e.jobs.conftest import JOBS, TRAIN, made, rules
from tests.e2e.jobs.test_kernel import environment
from tests.helpers import frameworks_notebook
from tests.helpers.frameworks_notebook import RANKS

pytestmark = [
    pytest.mark.second("operators"),
    pytest.mark.frameworks,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("training"),  # one at a time: two starve each other
    pytest.mark.usefixtures(
        "with_frameworks", "with_jax", "with_xgboost", "with_paddle", "with_mpi"
    ),
]


def trains(
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
    api: str,
    rights: list[Rule],
) -> Counter[str]:
    """Run the notebook with the setting `api`; return the kinds of its jobs, and how many.

    Args:
        namespace: Where the jobs run.
        tmp_path: Of the test.
        monkeypatch: For the kernel's environment.
        figure: Keeps the seconds of each cell.
        api: The setting.
        rights: Those of the user.
    """
    team = made(namespace, tmp_path, monkeypatch, rights)
    images = {name.partition(",")[0]: name.partition(",")[0] for name in RANKS}
    images["custom"] = "tools"
    team.images.update({name: namespace.cluster.image(image) for name, image in images.items()})
    for name, value in {**environment(team), "CIAO_API": api}.items():
        monkeypatch.setenv(name, value)
    ran = frameworks_notebook.run(tmp_path / "notebooks", patience=280)
    figure(", ".join(f"{name} {one.seconds:.0f} s" for name, one in ran.items()))
    assert list(ran) == list(RANKS)
    wrong = {name: said for name, ranks in RANKS.items() if (said := ran[name].wrong(ranks))}
    assert wrong == {}
    kinds = namespace.get("tfjobs,pytorchjobs,jaxjobs,xgboostjobs,paddlejobs,mpijobs,jobs.batch")
    return Counter(one["kind"] for one in kinds["items"])


def test_as_jobs_of_the_training_operator(
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    """For python and custom it has no kind: the same setting makes them Indexed Jobs."""
    kinds = trains(namespace, tmp_path, monkeypatch, figure, "v1", [*rules(), *rules(JOBS)])
    one_each = dict.fromkeys(("TFJob", "JAXJob", "XGBoostJob", "PaddleJob", "MPIJob"), 1)
    assert kinds == {**one_each, "PyTorchJob": 2, "Job": 2}


def test_as_train_jobs(
    trainer: None,
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    trains(namespace, tmp_path, monkeypatch, figure, "trainer", rules(TRAIN))
    assert len(namespace.get("trainjobs")["items"]) == len(RANKS)


def test_as_indexed_jobs(
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
) -> None:
    kinds = trains(namespace, tmp_path, monkeypatch, figure, "job", rules(JOBS))
    assert kinds == {"Job": len(RANKS)}
