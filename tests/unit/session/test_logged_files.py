"""What a replica says in its log about files of a run is foreign input."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.model import Job, Replica
from ciao_kernel.session.warm.logged_files import LoggedFiles

JOB = Job(
    name="mine",
    backend="kubernetes",
    framework="tensorflow",
    replicas=(Replica("worker", 0),),
    created=1.0,
    place="team",
    kind_of_place="namespace",
    uid="uid",
)


@pytest.mark.parametrize("number", [0, -1, True, "1", 1.0, None])
def test_only_a_run_has_files_in_the_log(tmp_path: Path, number: Any) -> None:
    """The number is part of a path; 0 would be the folder of the job itself."""
    files = LoggedFiles(replace(JOB, folder=str(tmp_path)), backend=None)  # type: ignore[arg-type]
    marker = {"ev": "end", "id": number, "gives": True, "words": ["**"]}
    assert asyncio.run(files.take(JOB.replicas[0], marker)) == []
    assert not files._runs
