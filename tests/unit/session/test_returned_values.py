"""What a cell says of values that came back."""

from __future__ import annotations

import json
from pathlib import Path

from ciao_kernel.delivery.output import results
from ciao_kernel.model import Job, Replica, ReplicaStatus, State, Status
from ciao_kernel.session import returned_values


def test_a_type_that_a_file_has_lost_is_said_below_the_values(tmp_path: Path) -> None:
    worker = Replica("worker", 0)
    job = Job("j", "local", "python", (worker,), 1.0, header="%output=rows", folder=str(tmp_path))
    place = results.folder(job.files, worker)
    place.mkdir(parents=True)
    (place / "rows.json").write_text("{}")
    told = {"type": "builtins.dict", "file": "rows.json", "lost": ["defaultdict", "dict"]}
    (place / ".index.json").write_text(json.dumps({"names": ["rows"], "values": {"rows": told}}))
    came, note = returned_values.sentences(job, Status(State.SUCCEEDED, ()))
    assert came.startswith("brought back from worker-0: rows ")
    assert note == (
        "%output: rows came back with dict in place of defaultdict: files keep plain types."
    )


TWO = (Replica("worker", 0), Replica("worker", 1))


def told(folder: Path, *indexes: dict[str, object] | None, code: int = 0) -> list[str]:
    job = Job("j", "local", "python", TWO, 1.0, header="%output=rows\n", folder=str(folder))
    for replica, index in zip(TWO, indexes, strict=False):
        place = results.folder(job.files, replica)
        place.mkdir(parents=True)
        (place / "rows.json").write_text("{}")
        (place / ".index.json").write_text(json.dumps({"names": ["rows"], **(index or {})}))
    ended = ReplicaStatus(TWO[0], State.FAILED if code else State.SUCCEEDED, 0.0, code)
    status = Status(State.FAILED if code else State.SUCCEEDED, (ended,), decided_by=TWO[0])
    return list(returned_values.sentences(job, status))


def test_a_program_without_the_variable_says_what_it_had(tmp_path: Path) -> None:
    near = {"values": {}, "absent": {"rows": {"near": "row"}}}
    assert told(tmp_path, near) == [
        "no values came back for %output: rows did not exist when the program ended. Did you mean "
        "row?"
    ]


def test_a_program_that_failed_is_not_said_to_have_ended_otherwise(tmp_path: Path) -> None:
    assert told(tmp_path, code=1) == [
        "no values came back for %output: the program failed before it could give back rows."
    ]
    (other,) = told(tmp_path, code=-9)
    assert "it ended by a signal or os._exit" in other


def test_a_replica_without_the_variable_hides_no_other_with_it(tmp_path: Path) -> None:
    given = {"values": {"rows": {"type": "builtins.dict", "file": "rows.json"}}}
    (came,) = told(tmp_path, {"values": {}}, given)
    assert came.startswith("brought back from worker-1: rows ")


def test_what_a_replica_tells_of_absent_variables_is_foreign_input(tmp_path: Path) -> None:
    odd = {"values": {}, "absent": {"rows": {"near": "\x1b[31m", "path": 3}}, "raised": "<b>"}
    (sentence,) = told(tmp_path, odd)
    assert sentence.endswith(": rows did not exist when the program ended.")
