"""Where the time goes is told from reports and from junit files in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites import durations, known_seconds, minutes
from tests.suites.durations import Took

TESTS = [
    Took("tests/unit/magics/test_a.py::test_one", 0.5, 0.25),
    Took("tests/e2e/jobs/test_b.py::test_two[x]", 12.0, 3.0),
    Took("tests/e2e/jobs/test_b.py::test_three", 8.0, 1.0),
    Took("tests/browser/test_c.py::test_four", 30.0, 9.0),
]


def test_folders_are_summed_up_and_the_longest_is_first() -> None:
    assert durations.folders(TESTS) == [
        ("tests/browser", 1, 30.0, 9.0),
        ("tests/e2e/jobs", 2, 20.0, 4.0),
        ("tests/unit", 1, 0.5, 0.25),
    ]
    assert durations.table(TESTS)[-1] == "| all | 4 | 50 | 13 |"


def test_the_slowest_are_named_with_both_times() -> None:
    lines = durations.slowest(TESTS, most=2)
    assert [line.split()[-1] for line in lines] == [
        "tests/browser/test_c.py::test_four",
        "tests/e2e/jobs/test_b.py::test_two[x]",
    ]
    assert "30.0 s" in lines[0]
    assert "9.0 CPU s" in lines[0]


def test_a_reports_three_phases_are_one_test() -> None:
    def report(when: str, seconds: float, **more: object) -> pytest.TestReport:
        place = ("tests/unit/test_a.py", 1, "test_one")
        return pytest.TestReport(
            "tests/unit/test_a.py::test_one", place, {}, "passed", None, when,  # type: ignore[arg-type]
            duration=seconds, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    stats = {
        "": [report("setup", 1.0), report("teardown", 2.0, user_properties=[("cpu", 0.75)])],
        "passed": [report("call", 4.0)],
        "deselected": ["no report"],
    }
    assert durations.of_reports(stats) == [Took("tests/unit/test_a.py::test_one", 7.0, 0.75)]


def test_a_junit_file_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.e2e.jobs.test_b" name="test_two[x]" '
        'time="12.0"><properties><property name="cpu" value="3.0"/></properties></testcase>'
        '<testcase classname="tests.unit.magics.test_a.TestIt" name="test_one" time="0.5"/>'
        "</testsuite></testsuites>"
    )
    assert minutes.read(tmp_path / "one.xml") == [
        Took("tests/e2e/jobs/test_b.py::test_two[x]", 12.0, 3.0),
        Took("tests/unit/magics/test_a.py::test_one", 0.5, 0.0),
    ]
    assert minutes.main(["--folder", str(tmp_path)]) == 0
    assert "| tests/e2e/jobs | 1 | 12 | 3 |" in capsys.readouterr().out


def test_no_file_at_all_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert minutes.main(["--folder", str(tmp_path)]) == 1
    assert "`make test` writes them" in capsys.readouterr().err


def test_long_tests_are_kept_for_the_order_of_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "seconds.json"
    known_seconds.write([Took("a.py::one[x]", 10, 0), Took("a.py::one[y]", 20, 0)], file)
    known_seconds.write([Took("b.py::two", 30, 0), Took("b.py::short", 1, 0)], file)
    assert known_seconds.read(file) == {"a.py::one": 15, "b.py::two": 30}
    known_seconds.write([Took("b.py::two", 1, 0)], file)  # it has become short
    assert known_seconds.read(file) == {"a.py::one": 15}


def test_what_a_file_of_unit_tests_takes_is_kept_too(tmp_path: Path) -> None:
    file, test = tmp_path / "seconds.json", "tests/unit/a/test_b.py::test_c"
    known_seconds.write([Took(f"{test}[{n}]", 1, 0) for n in range(4)], file)
    assert known_seconds.read(file) == {"tests/unit/a/test_b.py": 4}
    known_seconds.write([Took(test, 1, 0)], file)
    assert known_seconds.read(file) == {}
