"""What a cluster refuses is known before anything exists, and said with what helps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ciao_kernel.errors import CiaoError, ClusterFault, UsageError
from ciao_kernel.model import State
from tests.cluster.faults import policies
from tests.cluster.faults.users import Rule
from tests.cluster.waiting import until
from tests.e2e.jobs.conftest import Team, rules
from tests.helpers.jobs import Ended, Recorder

CELL = "%framework=tensorflow\n%name=asked\n%worker=2;%cpu=300m;%memory=32Mi\nprint('ran')\n"


def refused(team: Team, text: str, kind: type[CiaoError]) -> CiaoError:
    """The error of a cell of which nothing exists afterwards."""
    ended = team.run(text)
    assert isinstance(ended.error, kind), ended.error
    assert team.left() == []
    return ended.error


# ------------------------------------------------------------------------------- quota


def test_a_job_that_no_quota_has_room_for_is_refused_as_a_whole(team: Team) -> None:
    policies.put_quota(team.namespace, limits_cpu="500m", requests_memory="1Gi", pods="5")
    error = refused(team, CELL, UsageError)  # one pod of it would fit
    assert "the quota quota of the namespace" in error.message
    assert "limits.cpu: the job asks for 600m, and 0 of 500m are used" in error.message
    assert "memory" not in error.message
    fits = team.run(CELL.replace("300m", "200m"))
    assert fits.error is None, fits.error


@pytest.mark.second("faults")
def test_without_the_right_to_see_quotas_the_pods_are_tried_by_those_who_may(team: Team) -> None:
    policies.put_quota(team.namespace, limits_cpu="200m")
    kept = [rule for rule in rules() if "resourcequotas" not in rule.resources]
    team.user.allow(*kept, Rule(["pods"], ["create"]))
    error = refused(team, CELL, UsageError)
    assert "exceeded quota: quota, requested: limits.cpu=300m" in error.message


@pytest.mark.second("faults")
def test_a_quota_of_what_is_beside_the_job_leaves_no_job_behind(team: Team) -> None:
    authority = "configmap/kube-root-ca.crt"
    until(lambda: team.namespace.find(authority), "the one that every namespace gets", 60)
    policies.put_quota(team.namespace, **{"count/configmaps": "1"})
    kept = [rule for rule in rules() if "resourcequotas" not in rule.resources]
    team.user.allow(*kept)
    error = refused(team, CELL, ClusterFault)
    assert "exceeded quota" in error.message


# ------------------------------------------------------------------------ Pod Security


@pytest.fixture
def restricted(team: Team) -> Team:
    """The team, in a namespace of Pod Security's strictest level."""
    team.namespace.label(policies.pod_security("restricted"))
    return team


def test_a_restricted_namespace_gets_pods_that_ask_for_no_rights(restricted: Team) -> None:
    (restricted.folder / "data").mkdir()
    (restricted.folder / "data" / "a.txt").write_text("a")
    said: list[str] = []

    async def look(display: Recorder, work: asyncio.Task[Ended]) -> None:
        while not said:
            found = await asyncio.to_thread(restricted.namespace.get, "pods")
            for pod in found["items"]:
                for one in pod["status"].get("initContainerStatuses", ()):
                    why = one["state"].get("waiting", {}).get("message", "")
                    said.extend([why] if why else [])
            await asyncio.sleep(0.2)
        work.cancel()

    cell = "%framework=tensorflow\n%name=asked\n%worker=1\n%files=data/\nprint()\n"
    with pytest.raises(asyncio.CancelledError):
        restricted.run(cell, during=look)
    # It was let in. The image's user is root, which the kubelet alone can know.
    assert "image will run as root" in said[0]


@pytest.mark.second("faults")
def test_an_image_with_a_user_of_its_own_runs_in_a_restricted_namespace(restricted: Team) -> None:
    (restricted.folder / "data").mkdir()
    (restricted.folder / "data" / "a.txt").write_text("a")
    ended = restricted.run(
        "%framework=tensorflow\n%worker=2\n%successPolicy=allWorkers\n%files=data/\n"
        "import os, pathlib\n"
        "pathlib.Path('data/b.txt').write_text('b')\nprint(os.getuid(), os.listdir('data'))\n",
        images={"tensorflow": restricted.namespace.cluster.image("s2i-python")},
    )
    assert ended.error is None, ended.error
    assert ended.display.data("worker-1").startswith(b"1001 [")


@pytest.mark.second("faults")
def test_those_who_may_not_look_at_the_namespace_learn_it_from_a_trial(restricted: Team) -> None:
    kept = [rule for rule in rules() if "namespaces" not in rule.resources]
    restricted.user.allow(*kept, Rule(["pods"], ["create"]))
    shown = restricted.run("%framework=tensorflow\n%worker=1\n%detach\nprint()\n")
    assert shown.error is None, shown.error
    (job,) = restricted.namespace.get("tfjobs")["items"]
    pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True


# --------------------------------------------------------------------------- namespace


@pytest.mark.second("faults")
def test_a_namespace_that_is_going_takes_no_job(team: Team) -> None:
    name = team.namespace.name
    meta = {"name": "holds", "finalizers": ["ciao-kernel/test"]}
    team.namespace.create_objects({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    team.namespace.delete()
    try:
        ended = team.run(CELL)
    finally:
        free = {"metadata": {"finalizers": None}}
        team.namespace.cluster.api.patch(name, "configmap/holds", free)
    assert isinstance(ended.error, ClusterFault)
    # The rights go first: whichever it was, nothing was created and the namespace is named.
    assert name in ended.error.message


def test_a_namespace_that_does_not_exist_is_named(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = team.run("%namespace=no-such-team\n" + CELL).error
    assert isinstance(error, ClusterFault)
    assert "in the namespace no-such-team" in error.message
    assert "or the namespace does not exist" in error.message
    monkeypatch.setenv("KUBECONFIG", team.namespace.cluster.environment["KUBECONFIG"])
    error = team.run("%namespace=no-such-team\n" + CELL).error  # as somebody who may know
    assert isinstance(error, ClusterFault)
    assert error.message == "there is no namespace no-such-team."


@pytest.mark.second("faults")
def test_a_namespace_that_goes_with_the_kernel_is_said(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_ID", "1234-5678")
    ended = team.run(CELL.replace("%worker", "%detach\n%worker"))
    assert "is deleted with it" not in ended.display.notices
    monkeypatch.setenv("KERNEL_POD_NAME", team.namespace.name)
    ended = team.run(CELL)
    said = f"the namespace {team.namespace.name} was made for this kernel"
    assert ended.display.notices.count(said) == 1
    error = team.run(CELL.replace("%worker", "%detach\n%worker")).error
    assert isinstance(error, UsageError)
    assert said in error.message
    assert "%namespace" in error.hint


# ------------------------------------------------------------------------ who one is


@pytest.mark.second("faults")
def test_a_client_certificate_is_enough(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", team.namespace.cluster.environment["KUBECONFIG"])
    ended = team.run(CELL)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED


@pytest.mark.second("faults")
def test_an_administrator_who_acts_as_a_user_has_that_users_rights(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = yaml.safe_load(Path(team.namespace.cluster.environment["KUBECONFIG"]).read_text())
    user = f"system:serviceaccount:{team.namespace.name}:{team.user.name}"
    admin["users"][0]["user"]["as"] = user
    file = tmp_path / "acting"
    file.write_text(json.dumps(admin))
    monkeypatch.setenv("KUBECONFIG", str(file))
    ended = team.run(CELL)
    assert ended.error is None, ended.error
    error = team.run("%namespace=no-such-team\n" + CELL).error
    assert isinstance(error, ClusterFault)
    assert "or the namespace does not exist" in error.message, "the administrator may know"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["users"][0]["user"].update(token="x.y.z"), "not accept these credentials"),
        (lambda c: c["clusters"][0]["cluster"].update({"tls-server-name": "elsewhere"}),
         "is not trusted"),
        (lambda c: c["clusters"][0]["cluster"].pop("certificate-authority-data"), "is not trusted"),
        (lambda c: c["clusters"][0]["cluster"].update(server="https://no-such-host.invalid"),
         "the host name cannot be resolved"),
    ],
    ids=["token", "name", "authority", "host"],
)  # fmt: skip
def test_what_no_waiting_mends_is_said_at_once(
    team: Team, tmp_path: Path, change: Callable[[dict[str, object]], object], said: str
) -> None:
    file = tmp_path / "kubeconfig"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    error = team.run(CELL, request_patience=3600.0).error  # the test's own limit would end it
    assert isinstance(error, CiaoError)
    assert said in error.message
