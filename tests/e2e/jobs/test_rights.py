"""Each verb of deploy/rbac is needed: without it a feature fails, or does less."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
import yaml

from ciao_kernel.errors import CiaoError, ClusterFault, UsageError
from ciao_kernel.model import Owner, Replica
from ciao_kernel.model.queries import Streams
from ciao_kernel.session.plugin_registry import Registry
from ciao_kernel.session.session import Session
from tests.cluster.faults import policies
from tests.cluster.faults.users import Rule
from tests.cluster.rights import account, wait_until_may
from tests.e2e.jobs.conftest import EXEC, ROLE, Team, rules

CELL = "%framework={}\n%worker=1\nprint('ran')\n"

FRAMEWORKS = {
    "tfjobs": "tensorflow",
    "pytorchjobs": "pytorch",
    "jaxjobs": "jax",
    "xgboostjobs": "xgboost",
    "paddlejobs": "paddle",
    "mpijobs": "mpi",
}
REQUIRED = [
    *(("kubeflow.org", kind, ("create", "get", "list", "watch", "delete")) for kind in FRAMEWORKS),
    ("", "configmaps", ("create", "get")),
    ("", "pods", ("get", "list", "watch")),
    ("", "pods/log", ("get",)),
]
OPTIONAL = {
    ("", "events", "list"),
    ("", "resourcequotas", "list"),
    ("", "limitranges", "list"),
    *(("", "configmaps", verb) for verb in ("list", "patch", "delete")),  # test_killed_submissions
    ("", "namespaces", "get"),
}
ENTER = {("", "pods/exec", "create"), ("", "pods/exec", "get")}
"""The rule of exec-role.yaml."""


def verbs(*files: Path) -> set[tuple[str, str, str]]:
    """The verbs of some Roles; by default of all."""
    return {
        (group, resource, verb)
        for file in files or (ROLE, EXEC)
        for rule in rules(file)
        for group in rule.groups
        for resource in rule.resources
        for verb in rule.verbs
    }


def without(*taken: tuple[str, str, str]) -> list[Rule]:
    """The Roles with some verbs taken away."""
    left = sorted(verbs() - set(taken))
    assert len(left) == len(verbs()) - len(taken)
    return [Rule([resource], [verb], [group]) for group, resource, verb in left]


def test_every_verb_of_the_role_is_tried_here() -> None:
    tried = {(group, name, verb) for group, name, found in REQUIRED for verb in found}
    assert verbs(ROLE) == tried | OPTIONAL
    assert verbs(EXEC) == ENTER


def test_without_any_one_verb_a_cell_says_which_and_who_can_help(team: Team) -> None:
    for group, resource, found in REQUIRED:
        for verb in found:
            team.user.allow(*without((group, resource, verb)))
            framework = FRAMEWORKS.get(resource, "tensorflow")
            error = team.run(CELL.format(framework)).error
            right = f"{verb} {resource}" + (f".{group}" if group else "")
            assert isinstance(error, ClusterFault), right
            assert error.message.endswith(f"missing rights: {right}.")
            assert "apply -f -" in error.hint
    assert team.left() == []


def test_all_that_is_missing_is_said_at_once_and_the_role_that_it_shows_mends_it(
    team: Team,
) -> None:
    taken = [("kubeflow.org", "tfjobs", "delete"), ("", "pods", "watch"), ("", "pods/log", "get")]
    team.user.allow(*without(*taken))
    error = team.run(CELL.format("tensorflow")).error
    assert isinstance(error, ClusterFault)
    assert "missing rights: delete tfjobs.kubeflow.org, watch pods, get pods/log." in error.message
    shown = error.hint.partition("\n\n")[2]
    role, binding = yaml.safe_load_all(shown)
    assert [(r["apiGroups"], r["resources"], r["verbs"]) for r in role["rules"]] == [
        ([group], [resource], [verb]) for group, resource, verb in taken
    ]
    assert binding["subjects"][0]["name"].endswith(f":{team.namespace.name}:user")
    team.namespace.kubectl("apply", "-f", "-", text=shown)
    given = [(verb, f"{resource}.{group}".rstrip(".")) for group, resource, verb in taken]
    user = account(team.namespace.name, team.user.name)
    wait_until_may(team.namespace.cluster, user, given, team.namespace.name)
    ended = team.run(CELL.format("tensorflow"))
    assert ended.error is None, ended.error


# ------------------------------------------------------------------------- optional verbs


@pytest.mark.second("faults")
def test_without_events_nobody_tells_what_happened_to_a_job(team: Team) -> None:
    team.run(CELL.format("tensorflow"))
    assert team.details().cluster_events
    team.user.allow(*without(("", "events", "list")))
    found = team.details()
    assert not found.cluster_events
    assert "you may not list events" in found.missing
    ended = team.run(CELL.format("tensorflow"))
    assert ended.error is None, ended.error


@pytest.mark.second("faults")
def test_without_quotas_a_job_that_is_too_large_is_found_out_later(team: Team) -> None:
    policies.put_quota(team.namespace, pods="0")
    assert isinstance(team.run(CELL.format("tensorflow")).error, UsageError)
    team.user.allow(*without(("", "resourcequotas", "list")))
    ended = team.run("%detach\n" + CELL.format("tensorflow"))
    assert ended.error is None, ended.error
    assert "TFJob" in str(team.left())


@pytest.mark.second("faults")
def test_without_limit_ranges_what_the_namespace_adds_is_not_counted(team: Team) -> None:
    policies.put_limits(team.namespace, default={"cpu": "600m"})
    policies.put_quota(team.namespace, **{"requests.cpu": "1"})
    two = CELL.format("tensorflow").replace("%worker=1", "%worker=2")
    error = team.run(two).error
    assert isinstance(error, UsageError)
    assert "the job asks for 1200m" in error.message
    team.user.allow(*without(("", "limitranges", "list")))
    assert team.run("%detach\n" + two).error is None
    assert "TFJob" in str(team.left())


@pytest.mark.second("faults")
def test_without_the_namespace_pod_security_is_found_out_later(team: Team) -> None:
    team.namespace.label(policies.pod_security("restricted"))
    team.user.allow(*without(("", "namespaces", "get")))
    assert team.run("%name=plain\n%detach\n" + CELL.format("tensorflow")).error is None
    team.user.allow(*rules())
    assert team.run("%name=secured\n%detach\n" + CELL.format("tensorflow")).error is None
    for job, context in (("plain", False), ("secured", True)):
        spec = team.namespace.get(f"tfjob/{job}")["spec"]["tfReplicaSpecs"]["Worker"]
        assert ("securityContext" in spec["template"]["spec"]) is context


def test_a_command_in_a_replica_needs_the_right_to_run_one(team: Team) -> None:
    team.user.allow(*rules(), *rules(EXEC))
    cell = "%framework=tensorflow\n%name=shell\n%worker=1\n%detach\nimport time; time.sleep(600)\n"
    assert team.run(cell).error is None
    team.namespace.wait_for_pod("shell-worker-0", "Running")

    def run() -> bytes:  # a new client each time: rights are remembered for some minutes
        said = bytearray()
        streams = Streams(said.extend, said.extend)

        async def main() -> None:
            registry = Registry({})
            session = Session(registry, Owner("a test", os.getpid()), team.settings())
            try:
                backend, job, *_ = await session.find("shell")
                await backend.execute(job, Replica("worker", 0), ["echo", "hello"], streams)
            finally:
                await registry.close()

        asyncio.run(main())
        return bytes(said)

    assert run() == b"hello\n"
    team.user.allow(*rules())
    with pytest.raises(CiaoError, match="pods/exec"):
        run()
    # Which of the two verbs a server asks for depends on its version: up to 1.34 it is get.
    allowed = []
    for verb, other in (("get", "create"), ("create", "get")):
        team.user.allow(*without(("", "pods/exec", other)))
        with contextlib.suppress(CiaoError):
            allowed += [verb] if run() == b"hello\n" else []
    assert allowed
    print("pods/exec is enough with one verb:", allowed)
