"""The columns that %usage adds to the live table."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace

import pytest

from ciao_kernel.config import Settings
from ciao_kernel.display.html_table import table_html
from ciao_kernel.display.table import Table
from ciao_kernel.display.terminal import TerminalDisplay
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.model.usage import GpuUsage, Usage, UsageReport

MI = 1024 * 1024
ONE, TWO = Replica("worker", 0), Replica("worker", 1)
JOB = Job("mine", "local", "python", (ONE, TWO), 0.0, "/jobs/mine/work")
SHOWN = ("replica", "cpu", "memory", "peak")


def table(job: Job = JOB) -> Table:
    made = Table(job, usage=True)
    made.status = Status(
        State.RUNNING, tuple(ReplicaStatus(one, State.RUNNING) for one in (ONE, TWO))
    )
    return made


def test_without_a_wish_there_are_no_columns() -> None:
    made = Table(JOB)
    made.note_usage(UsageReport((Usage(ONE, 1.0, MI, MI),)))
    assert "cpu" not in made.headings()
    assert "cpu" not in made.headings(fixed=True)
    assert "cpu" not in Table(replace(JOB, kind_of_place="namespace")).headings(fixed=True)
    assert made.rows()[0].cpu == ""


def test_columns_are_there_from_the_start() -> None:
    made = table()
    assert made.headings() == (
        "replica", "state", "time", "cpu", "memory", "peak", "lines/s", "log", "last line",
    )  # fmt: skip
    assert made.rows()[0].cells(SHOWN) == ("worker-0", "–", "–", "–")
    cluster = table(replace(JOB, kind_of_place="namespace", header="%worker=2;%gpu=1"))
    assert cluster.headings(fixed=True)[4:9] == ("restarts", "cpu", "memory", "peak", "gpu")
    made.note_usage(UsageReport((Usage(ONE, 1.234, 90 * MI, 95 * MI, 256 * MI),)))
    first, second = made.rows()
    assert first.cells(SHOWN) == ("worker-0", "1.23", "90Mi", "95Mi of 256Mi")
    assert second.cells(SHOWN) == ("worker-1", "–", "–", "–")
    assert ">95Mi of 256Mi</td>" in table_html(made)


def test_metrics_of_a_cluster_have_a_limit_without_a_peak() -> None:
    made = table()
    made.note_usage(UsageReport((Usage(ONE, 0.0, 90 * MI, None, 256 * MI),)))
    assert made.rows()[0].cells(SHOWN) == ("worker-0", "0.00", "90Mi of 256Mi", "–")


def test_the_peak_outlives_the_replica() -> None:
    made = table()
    made.note_usage(UsageReport((Usage(ONE, 1.0, 90 * MI, 95 * MI),)))
    made.note_usage(UsageReport((Usage(ONE, fault="it is Succeeded"),)))
    assert made.rows()[0].cells(SHOWN) == ("worker-0", "–", "–", "95Mi")
    made.note_usage(UsageReport((Usage(ONE, 1.0, 90 * MI, 95 * MI),)))
    made.status = Status(State.FAILED, (ReplicaStatus(ONE, State.FAILED),))
    assert made.rows()[0].cells(SHOWN) == ("worker-0", "–", "–", "95Mi")


def test_the_peak_does_not_fall_when_processes_of_a_replica_end() -> None:
    made = table()
    made.note_usage(UsageReport((Usage(ONE, 1.0, 90 * MI, 95 * MI),)))
    made.note_usage(UsageReport((Usage(ONE, 1.0, 20 * MI, 30 * MI),)))
    assert made.rows()[0].cells(SHOWN) == ("worker-0", "1.00", "20Mi", "95Mi")


def test_gpus_have_a_column_where_there_is_one() -> None:
    made = table()
    assert "gpu" not in made.headings()
    gpus = (GpuUsage(0.5, 1024 * MI, 8192 * MI), GpuUsage(1.0, 3072 * MI, 8192 * MI))
    made.note_usage(UsageReport((Usage(ONE, 1.0, MI, gpus=gpus), Usage(TWO, 1.0, MI))))
    assert "gpu" in made.headings()
    assert [row.gpu for row in made.rows()] == ["75 %, 4.0Gi of 16Gi", "–"]
    unknown = (GpuUsage(None, 3 * MI), GpuUsage(1.0, 3 * MI))
    made.note_usage(UsageReport((Usage(ONE, 1.0, MI, gpus=unknown),)))
    assert made.rows()[0].gpu == "6.0Mi"


@pytest.mark.parametrize("tty", [True, False], ids=["window", "pipe"])
@pytest.mark.parametrize(
    ("header", "setting", "wanted"),
    [("%usage=on", "off", True), ("", "on", True), ("%usage=off", "on", False), ("", "off", False)],
)
def test_a_terminal_shows_them_on_wish(
    tty: bool, header: str, setting: str, wanted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return tty

    async def main() -> str:
        stream = Stream()
        display = TerminalDisplay(Settings(usage=setting), stream)
        display.begin(replace(JOB, header=f"%framework=python\n{header}"), ())
        display.show(Status(State.RUNNING, (ReplicaStatus(ONE, State.RUNNING),)))
        display.show(UsageReport((Usage(ONE, 1.25, 90 * MI, 95 * MI),)))
        await display.end()
        display.close()
        return stream.getvalue()

    shown = asyncio.run(main()) + capsys.readouterr().err
    assert ("1.25" in shown and "90Mi" in shown and "memory" in shown) is wanted
    assert ("cpu" in shown) is wanted
