"""What torchrun writes about a failed process, in the words of torch 2.15."""

from __future__ import annotations

from ciao_kernel.frameworks.torchrun_report import without_reports
from tests.helpers.torchrun_report import KILLED, STOPPED, report


def lines(text: str) -> list[bytes]:
    return text.encode().splitlines()


def test_a_report_is_found_among_other_lines_with_its_exit_code() -> None:
    kept, summary = without_reports(lines(f"step 1\n{report(1)}step 2\n"))
    assert kept == [b"step 1", b"step 2"]
    assert summary == "rank 1 ended with exit code 1"
    assert without_reports(lines(KILLED)) == ([], "rank 0 was killed by SIGKILL")
    # torchrun of another replica is stopped then.
    assert without_reports(lines(f"go\n{STOPPED}")) == ([b"go"], "")


def test_lines_of_another_process_stay() -> None:
    first, second, rest = report(0).split("\n", 2)
    assert without_reports(lines(f"{first}\nof another\n{second}\n{rest}"))[0] == [b"of another"]


def test_lines_without_a_whole_report_stay() -> None:
    whole = lines(report(0))
    assert without_reports(whole[:-1])[0] == whole[:-1]
    assert without_reports(whole[:1])[0] == whole[:1]
    # A program may handle such an error by itself.
    own = [line for line in whole[1:] if b"torch/distributed/run.py" not in line]
    assert without_reports(own)[0] == own
