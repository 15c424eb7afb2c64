"""The way by which files of %output come back: the cell's word, or what the user may do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ciao_kernel.backends.kubernetes.output import output_store
from ciao_kernel.backends.kubernetes.submission import output_checks
from ciao_kernel.config import Settings
from ciao_kernel.errors import BackendError, SpecError
from ciao_kernel.model import Job, JobSpec, Replica, ReplicaGroup
from ciao_kernel.model.build_spec import BuildSpec
from ciao_kernel.model.outputs import OutputWay
from ciao_kernel.session import planning
from tests.unit.backends.kubernetes.cluster.test_checks import ALL, Server, target

LOGS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}
GET_ONLY = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods/exec"]}


def server(*rules: dict[str, Any]) -> Server:
    return Server(
        selfsubjectrulesreviews={"status": {"resourceRules": list(rules), "incomplete": False}}
    )


def spec(*words: str) -> JobSpec:
    return JobSpec("tensorflow", outputs=words)


@pytest.mark.parametrize(
    ("words", "rules", "way"),
    [
        (["output/"], [ALL], OutputWay.EXEC),
        (["output/"], [LOGS], OutputWay.LOG),
        (["output/"], [LOGS, GET_ONLY], OutputWay.LOG),
        (["output/", "by:auto"], [LOGS], OutputWay.LOG),
        (["output/", "by:log"], [ALL], OutputWay.LOG),
        (["output/", "by:exec"], [LOGS], OutputWay.EXEC),
        (["output/", "by:registry"], [ALL], OutputWay.REGISTRY),
        (["output/", "by:claim"], [LOGS], OutputWay.CLAIM),
        (["loss"], [LOGS], OutputWay.LOG),
        (["by:auto"], [LOGS], OutputWay.EXEC),
    ],
)
def test_the_way_is_the_cells_or_what_the_user_may_do(
    words: list[str], rules: list[dict[str, Any]], way: OutputWay
) -> None:
    assert asyncio.run(output_checks.way(spec(*words), target(server(*rules)), Settings())) is way


@pytest.mark.parametrize(
    ("words", "rules", "limit", "notice"),
    [
        (["output/"], [ALL], 1e10, ""),
        (["loss"], [LOGS], 1e10, ""),
        (
            ["output/"],
            [LOGS],
            1e10,
            "files of %output come back by the log, as you may not create and get pods/exec here: "
            "at most 4.2 MB from each replica.",
        ),
        (
            ["output/", "by:log"],
            [ALL],
            5000.0,
            "files of %output come back by the log: at most 5.0 kB from each replica.",
        ),
    ],
)
def test_the_limit_of_the_log_is_said_before_the_job_exists(
    words: list[str], rules: list[dict[str, Any]], limit: float, notice: str
) -> None:
    settings = Settings(fetch_limit=limit)
    place = target(server(*rules))
    assert asyncio.run(output_checks.way_notice(spec(*words), place, settings)) == notice


@pytest.mark.parametrize(
    ("words", "rules", "part"),
    [
        (["output/"], [ALL], "at its end, or begins within 60 s after it"),
        (["output/"], [LOGS], "`%ciao attach job` follows the job while its pods exist."),
        (["loss"], [LOGS], ""),
    ],
)
def test_a_job_in_the_background_says_until_when_its_files_are_there(
    words: list[str], rules: list[dict[str, Any]], part: str
) -> None:
    job = Job("job", "kubernetes", "tensorflow", (), 1.0)
    place = target(server(*rules))
    work = output_checks.detached_notice(spec(*words), place, job, Settings())
    said = asyncio.run(work)
    assert part in said
    assert bool(said) is bool(part)


def test_two_ways_are_refused() -> None:
    with pytest.raises(SpecError, match="come back by one way, and %output names by:exec and by:l"):
        planning.check_outputs(spec("output/", "by:exec", "by:log"))
    planning.check_outputs(spec("output/", "by:log"))


def test_a_bucket_comes_before_the_rights_and_after_the_word() -> None:
    settings = Settings(output_store="s3://data/x")

    def way(*words: str) -> OutputWay:
        return asyncio.run(output_checks.way(spec(*words), target(server(LOGS)), settings))

    assert way("output/") is way("output/", "by:s3") is OutputWay.S3
    assert way("output/", "by:log") is OutputWay.LOG
    notice = output_checks.way_notice(spec("output/"), target(server(LOGS)), settings)
    assert asyncio.run(notice) == "files of %output come back by the bucket s3://data/x."


def test_a_registry_is_only_taken_by_the_word() -> None:
    settings = Settings(registry="host.example/team/cells")

    def way(*words: str) -> OutputWay:
        return asyncio.run(output_checks.way(spec(*words), target(server(LOGS)), settings))

    assert way("output/") is OutputWay.LOG
    words = spec("output/", "by:registry")
    notice = output_checks.way_notice(words, target(server(LOGS)), settings)
    assert asyncio.run(notice) == (
        "files of %output come back by the registry host.example/team/cells/ciao-output."
    )
    own = replace(words, build=BuildSpec(registry="other.example/cells"))
    notice = output_checks.way_notice(own, target(server(LOGS)), settings)
    assert "by the registry other.example/cells/ciao-output." in asyncio.run(notice)


def test_more_replicas_than_a_bucket_takes_have_the_other_ways() -> None:
    settings = Settings(output_store="s3://data/x")

    def way(count: int, *rules: dict[str, Any]) -> OutputWay:
        many = replace(spec("output/"), groups=(ReplicaGroup("worker", count),))
        return asyncio.run(output_checks.way(many, target(server(*rules)), settings))

    assert way(output_store.MOST, ALL) is OutputWay.S3
    assert way(output_store.MOST + 1, ALL) is OutputWay.EXEC
    assert way(output_store.MOST + 1, LOGS) is OutputWay.LOG


def test_addresses_that_no_process_could_get_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of a process has at most 128 KiB, and temporary keys make addresses long."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t" * 1500)
    settings = Settings(output_store="s3://data/x")
    replicas = [Replica("worker", number) for number in range(80)]
    with pytest.raises(BackendError, match="the addresses in the bucket for 80 replicas do not"):
        output_store.upload(settings, replicas, real=True)
    assert len(output_store.upload(settings, replicas[:40], real=True).addresses) < 100_000
    many = replace(spec("output/"), groups=(ReplicaGroup("worker", 80),))
    with pytest.raises(BackendError, match="do not fit into a pod"):
        asyncio.run(output_checks._check_store(many, settings))
