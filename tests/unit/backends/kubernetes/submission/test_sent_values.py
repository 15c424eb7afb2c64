"""Which replica gives large values as files, and when none does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.cluster.target import Target
from ciao_kernel.backends.kubernetes.submission import sent_values
from ciao_kernel.config import Settings
from ciao_kernel.errors import CiaoError
from ciao_kernel.frameworks.custom import Custom
from ciao_kernel.frameworks.mpi import Mpi
from ciao_kernel.frameworks.python import Python
from ciao_kernel.frameworks.tensorflow import TensorFlow
from ciao_kernel.model import Job, JobSpec, Owner, Replica, ReplicaGroup, Source, SourceFile
from ciao_kernel.plugins import Framework, Plan
from tests.unit.backends.kubernetes.cluster.test_checks import ALL, Server, target

LOGS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}


def case(
    *words: str,
    framework: Framework | None = None,
    rules: dict[str, Any] = ALL,
    minor: str = "34",
    warm: int | None = None,
    roles: tuple[str, ...] = ("ps", "worker"),
) -> tuple[Plan, Target]:
    found = framework or TensorFlow()
    groups = tuple(ReplicaGroup(role, 2) for role in roles)
    spec = JobSpec(found.name, groups, outputs=words, warm=warm)
    source = Source(SourceFile("cell.py", b"", size=0))
    server = Server(
        version={"major": "1", "minor": minor},
        selfsubjectrulesreviews={"status": {"resourceRules": [rules], "incomplete": False}},
    )
    return Plan("job", spec, found, source, Path(), "", Owner("me")), target(server)


def giver(*words: str, brings: bool = True, output_store: str = "", **more: Any) -> Replica | None:
    plan, place = case(*words, **more)
    settings = Settings(output_store=output_store)
    return asyncio.run(sent_values.giver(plan, place, settings, brings=brings))


def test_it_is_the_one_that_decides_about_the_job() -> None:
    assert giver("loss") == Replica("worker", 0)
    assert giver("loss", "model/", roles=("worker", "chief")) == Replica("chief", 0)
    assert giver("loss", framework=Python(), roles=("worker",)) == Replica("worker", 0)


def test_who_may_not_run_commands_in_pods_gets_them_by_the_log() -> None:
    assert giver("loss", rules=LOGS) == Replica("worker", 0)


def test_a_cell_without_values_or_a_way_for_them_runs_as_before() -> None:
    assert giver("model/") is None
    assert giver("loss", minor="28") is None
    assert giver("loss", warm=60) is None
    assert giver("loss", brings=False) is None
    assert giver("loss", output_store="s3://bucket/x", roles=("worker",), minor="28") is None
    assert giver("loss", framework=Custom(), roles=("worker",)) is None
    assert giver("loss", framework=Mpi(), roles=("worker",)) is None


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (("loss", "by:exec"), {"minor": "28"}),
        (("loss", "by:claim"), {}),
        (("loss", "by:s3"), {}),
    ],
)
def test_a_way_that_the_cell_names_has_to_be_possible(
    words: tuple[str, ...], more: dict[str, Any]
) -> None:
    with pytest.raises(CiaoError):
        giver(*words, **more)


@pytest.mark.parametrize(
    ("words", "rules", "said"),
    [
        (("loss",), ALL, True),
        (("loss",), LOGS, False),  # its log is there as long as the pod
        (("loss", "model/"), ALL, False),  # said of the files
        (("model/",), ALL, False),
    ],
)
def test_a_job_in_the_background_says_until_when_large_values_are_there(
    words: tuple[str, ...], rules: dict[str, Any], said: bool
) -> None:
    plan, place = case(*words, rules=rules)
    job = Job("job", "kubernetes", "tensorflow", (), 1.0)
    text = asyncio.run(sent_values.detached_notice(plan, place, job, Settings(fetch_wait=30)))
    assert bool(text) is said
    if said:
        assert "`%ciao attach job` follows the job at its end, or begins within 30 s" in text
