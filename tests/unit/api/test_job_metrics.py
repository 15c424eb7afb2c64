"""Metrics of a job as mappings and as tables."""

from __future__ import annotations

import pytest

from ciao_kernel.api import JobMetrics
from ciao_kernel.display.plotting import read_curves
from ciao_kernel.model import Replica

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
METRICS = JobMetrics(
    {
        str(ONE): read_curves(b"step 1 loss 4 acc: 0.1\nstep 2 loss 3 acc: 0.2\n"),
        str(TWO): read_curves(b"step 1 loss 5\nstep 3 loss 2.5\n"),
    }
)


def test_metric_then_replica_then_points() -> None:
    assert list(METRICS) == ["loss", "acc"]
    assert METRICS["loss"]["worker-1"].steps == (1, 3)
    assert METRICS["loss"][TWO].values == (5, 2.5)
    assert METRICS["Loss"].last == {"worker-0": 3, "worker-1": 2.5}
    assert METRICS.last == {"loss": {"worker-0": 3, "worker-1": 2.5}, "acc": {"worker-0": 0.2}}
    assert repr(METRICS) == "<metrics: loss, acc>"
    assert repr(METRICS["acc"]) == "<acc, last: worker-0: 0.2>"


@pytest.mark.parametrize(
    ("name", "replica", "text"),
    [
        ("los", "", "no 'los' was found in the logs. Did you mean 'loss'?"),
        ("xyz", "", "no 'xyz' was found in the logs. There are: loss, acc."),
        ("acc", "worker-1", "no 'worker-1' has logged acc. Did you mean 'worker-0'?"),
    ],
)
def test_a_missing_name_is_a_key_error_with_the_names(name: str, replica: str, text: str) -> None:
    with pytest.raises(KeyError) as caught:
        _ = METRICS[name][replica]
    assert str(caught.value) == text


def test_tables_of_pandas() -> None:
    pytest.importorskip("pandas")
    table = METRICS["loss"].to_frame()
    assert table.index.name == "step"
    assert list(table.columns) == ["worker-0", "worker-1"]
    assert list(table.index) == [1, 2, 3]
    assert table.loc[3, "worker-1"] == 2.5
    assert table.isna().sum().sum() == 2
    points = METRICS.to_frame()
    assert list(points.columns) == ["metric", "replica", "axis", "step", "value"]
    assert points[points.metric == "acc"].value.tolist() == [0.1, 0.2]
