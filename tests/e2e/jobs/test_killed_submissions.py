"""A kernel that is killed between the requests of a submission, and what the next one does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.faults.users import Rule
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, rules
from tests.e2e.jobs.test_kernel import CELL, ciao, environment

Start = Callable[..., Any]
KILL = """
import os, re, signal
from ciao_kernel.kube.client import Client
real = Client._call
async def call(self, method, path, query, *more, **named):
    if method == {!r} and re.search({!r}, path) and "dryRun" not in query:
        os.kill(os.getpid(), signal.SIGKILL)
    return await real(self, method, path, query, *more, **named)
Client._call = call
"""
SOON = (
    "from ciao_kernel.backends.kubernetes.lifecycle import unfinished; "
    "unfinished._SETTLED, unfinished._REQUESTS = 1.0, 0"
)
"""What is older than a second is not a submission that still goes on."""
SHORT = "%framework=tensorflow\n%name=next\n%worker=1\nprint('next')\n"


def killed(team: Team, start_kernel: Start, method: str, path: str) -> list[str]:
    """What is left after a kernel was killed just before a request."""
    kernel = start_kernel(env=environment(team))
    kernel.run(KILL.format(method, path))
    kernel.execute(CELL)
    kernel.process.wait(60)
    return kinds(team, "mine")


def kinds(team: Team, name: str) -> list[str]:
    found = (one.partition("/") for one in team.left())
    return [kind for kind, _, of in found if kind != "Pod" and of.startswith(name)]


def settled(team: Team, start_kernel: Start) -> str:
    """What the next kernel says beside its own job."""
    time.sleep(2)  # the server's creation times are whole seconds
    kernel = start_kernel(env=environment(team))
    kernel.run(SOON)
    return str(kernel.run(SHORT, 120).text)


@pytest.mark.second("faults")
def test_a_source_without_its_job_is_removed_by_the_next_kernel(
    team: Team, start_kernel: Start
) -> None:
    assert killed(team, start_kernel, "POST", r"/tfjobs$") == ["ConfigMap"]
    assert "removed" not in settled(team, start_kernel)
    until(lambda: not kinds(team, "mine"), "the source to go", 60)
    assert kinds(team, "next") == ["ConfigMap", "TFJob"]


@pytest.mark.second("faults")
def test_a_job_that_does_not_own_its_source_yet_runs_and_gets_it(
    team: Team, start_kernel: Start
) -> None:
    assert killed(team, start_kernel, "PATCH", r"/configmaps/") == ["ConfigMap", "TFJob"]
    team.namespace.wait_for_pod("mine-worker-0", "Running")
    settled(team, start_kernel)

    def owner() -> Any:
        items = team.namespace.get("configmaps")["items"]
        (meta,) = [one["metadata"] for one in items if one["metadata"]["name"].startswith("mine-")]
        return [one["name"] for one in meta.get("ownerReferences", ())]

    until(lambda: owner() == ["mine"], "the job to own its source", 60)
    ciao(team, "delete", "mine")
    until(lambda: not kinds(team, "mine"), "the job and its source to go", 60)


@pytest.mark.second("faults")
def test_a_job_that_does_not_own_its_source_yet_is_deleted_with_it(
    team: Team, start_kernel: Start
) -> None:
    assert killed(team, start_kernel, "PATCH", r"/configmaps/") == ["ConfigMap", "TFJob"]
    ciao(team, "delete", "mine")
    until(lambda: not kinds(team, "mine"), "the job and its source to go", 60)


def test_a_job_without_its_source_is_ended_by_the_next_kernel(
    team: Team, start_kernel: Start
) -> None:
    """With the required rights only, the job comes first, and its pods wait."""
    others = [rule for rule in rules() if "configmaps" not in rule.resources]
    team.user.allow(*others, Rule(["configmaps"], ["create", "get"]))
    assert killed(team, start_kernel, "POST", r"/configmaps$") == ["TFJob"]
    settled(team, start_kernel)
    until(lambda: not kinds(team, "mine"), "the job to go", 60)


@pytest.mark.second("faults", only="delete")
@pytest.mark.second("faults", only="patch")
@pytest.mark.parametrize("verb", ["list", "patch", "delete"])
def test_without_an_optional_right_jobs_own_their_sources_all_the_same(
    team: Team, verb: str
) -> None:
    others = [rule for rule in rules() if "configmaps" not in rule.resources]
    verbs = sorted({"create", "get", "list", "patch", "delete"} - {verb})
    team.user.allow(*others, Rule(["configmaps"], verbs))
    ended = team.run(SHORT)
    assert ended.error is None, ended.error
    items = team.namespace.get("configmaps")["items"]
    (meta,) = [one["metadata"] for one in items if one["metadata"]["name"].startswith("next-")]
    assert [one["kind"] for one in meta["ownerReferences"]] == ["TFJob"]
