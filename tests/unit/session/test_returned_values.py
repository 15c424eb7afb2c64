"""What a cell says of values that came back."""

from __future__ import annotations

import json
from pathlib import Path

from ciao_kernel.delivery.output import results
from ciao_kernel.model import Job, Replica, State, Status
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
