"""Values of an earlier try go when the next one begins, whoever begins it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ciao_kernel.delivery.output import result_tries, results
from ciao_kernel.delivery.output.result_writer import INDEX
from ciao_kernel.model import Job, Replica

ONE, TWO = Replica("worker", 0), Replica("worker", 1)
JOB = Job("j", "kubernetes", "x", (ONE, TWO), 0.0, header="%output=metrics\n%retries=3\n")


def give(folder: Path, replica: Replica) -> None:
    place = results.folder(folder, replica)
    place.mkdir(parents=True, exist_ok=True)
    (place / INDEX).write_text("{}")


def there(folder: Path) -> list[bool]:
    return [results.Results(results.folder(folder, one)).arrived for one in (ONE, TWO)]


def test_a_new_try_begins_without_values(tmp_path: Path) -> None:
    for one in (ONE, TWO):
        give(tmp_path, one)
    result_tries.begin(JOB, tmp_path)  # the first: it has just given them to another follower
    assert there(tmp_path) == [True, True]
    result_tries.begin(replace(JOB, tries=2), tmp_path)
    assert there(tmp_path) == [False, False]


def test_a_second_follower_of_a_try_removes_nothing(tmp_path: Path) -> None:
    second = replace(JOB, tries=2)
    result_tries.begin(second, tmp_path)
    give(tmp_path, TWO)
    result_tries.begin(second, tmp_path)
    assert there(tmp_path) == [False, True]
    result_tries.begin(replace(JOB, tries=3), tmp_path)
    assert there(tmp_path) == [False, False]


def test_a_job_without_values_gets_no_folder(tmp_path: Path) -> None:
    result_tries.begin(replace(JOB, tries=2, header="%retries=3\n"), tmp_path)
    assert not list(tmp_path.iterdir())
