"""The table of `ciao top`."""

from __future__ import annotations

import pytest

from ciao_kernel.display import usage_table
from ciao_kernel.model import Job, Replica
from ciao_kernel.model.usage import GpuUsage, Usage, UsageReport, size_text

MI = 1024 * 1024
ONE, TWO = Replica("worker", 0), Replica("worker", 1)


def test_columns_are_those_that_are_known() -> None:
    rows = (Usage(ONE, 1.0, 90 * MI, 95 * MI), Usage(TWO, fault="it is Pending"))
    assert usage_table.table(rows).splitlines() == [
        "REPLICA   CPU   MEMORY  PEAK  NOTE",
        "worker-0  1.00  90Mi    95Mi",
        "worker-1  –     –       –     it is Pending",
    ]


def test_a_gpu_and_a_limit() -> None:
    gpus = (GpuUsage(0.87, 11 * 1024 * MI, 80 * 1024 * MI), GpuUsage(None, 3 * MI))
    rows = (Usage(ONE, 0.5, 244 * MI, None, 256 * MI, gpus),)
    assert usage_table.table(rows).splitlines() == [
        "REPLICA   CPU   MEMORY  LIMIT  GPU",
        "worker-0  0.50  244Mi   256Mi  87 %, 11Gi of 80Gi; 3.0Mi",
    ]


def test_of_very_many_replicas_those_with_the_most_memory_are_shown() -> None:
    replicas = tuple(Replica("worker", number) for number in range(120))
    rows = tuple(Usage(one, 0.0, (one.index + 1) * MI) for one in replicas)
    job = Job("mine", "fake", "python", replicas, 0.0)
    text = usage_table.text(job, UsageReport(rows, "A remark."))
    first, heads, *shown, rest, remark = text.splitlines()
    assert first.startswith("what mine uses at ")
    assert heads.startswith("REPLICA")
    assert [line.split()[0] for line in shown] == [f"worker-{119 - n}" for n in range(40)]
    assert rest == "80 more replicas use 81Mi or less each; --replica chooses."
    assert remark == "A remark."


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (1000, "1000"), (2048, "2.0Ki"), (244.4 * MI, "244Mi"), (1.5 * 1024 * MI, "1.5Gi")],
)
def test_sizes_are_quantities(number: float, text: str) -> None:
    assert size_text(number) == text
