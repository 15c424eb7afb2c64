"""What cells do under training operator 1.9 they do under 1.8.1 too: the same tests, run again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ciao_kernel.model import State
from tests.cluster import recipes
from tests.cluster.cluster import Cluster
from tests.cluster.layout import layout
from tests.cluster.namespace import Namespace
from tests.e2e import namespaces
from tests.e2e.jobs import test_cells, test_endings, test_kernel
from tests.e2e.jobs.conftest import Team
from tests.helpers.jobs import Ended, Recorder, wait

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


def job_cell(notebook: str) -> str:
    cells = json.loads((NOTEBOOKS / notebook).read_text())["cells"]
    return next("".join(c["source"]) for c in cells if "".join(c["source"]).startswith("%"))


# The first test waits for the cluster, and its operator may have to be built.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.slow,
    pytest.mark.second("operators"),
    pytest.mark.xdist_group("older-operator"),
]


@pytest.fixture(scope="module")
def second_cluster(raisable: None, with_older_operator: None) -> Iterator[Cluster]:
    """A cluster with the older operator: other tests run beside, on the usual one."""
    made = Cluster(layout("older"))
    was_up = made.node.pid is not None
    made.up(["older_operator", "frameworks"])  # with the usual one
    made.run_operator(recipes.OLDER_OPERATOR)
    yield made
    if not was_up:
        made.down()


@pytest.fixture
def namespace(second_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    yield from namespaces.fresh(second_cluster, request)


def test_the_operator_is_the_older_one(second_cluster: Cluster) -> None:
    path = "jsonpath={.items[*].spec.containers[*].image}"
    images = second_cluster.kubectl("get", "pods", "-n", "kubeflow", "-o", path)
    assert images == f"{second_cluster.at.registry}/{recipes.OLDER_OPERATOR.name}"
    kinds = second_cluster.kubectl(
        "api-resources", "--api-group=kubeflow.org", "-o", "name"
    ).split()
    assert "mxjobs.kubeflow.org" in kinds
    assert "jaxjobs.kubeflow.org" not in kinds


# TensorFlow with a PS and two workers; PyTorch's DDP, whose torchrun the operator's variables tell
# all it needs. Under the usual operator the same cells run in their notebooks: test_kernel.py.
@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.usefixtures("with_frameworks")
@pytest.mark.parametrize(
    ("notebook", "image", "said"),
    [
        ("quickstart.ipynb", "tensorflow", ("worker-0", "worker 0 is done")),
        ("pytorch_ddp.ipynb", "pytorch", ("master-0", "rank 0 of 2 wrote")),
    ],
)
def test_the_examples_run_unchanged(
    team: Team, notebook: str, image: str, said: tuple[str, str]
) -> None:
    images = {image: team.namespace.cluster.image(image)}
    ended = team.run(job_cell(notebook), images=images)
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    assert said[1].encode() in ended.display.data(said[0])
    accuracy = re.findall(rb"accuracy (\d\.\d+)", ended.display.data(said[0]))
    assert float(accuracy[-1]) > 0.9


test_what_a_cell_asks_for_stands_in_its_pods = (
    test_cells.test_what_a_cell_asks_for_stands_in_its_pods
)
test_a_dry_run_shows_what_kubectl_makes_the_same_job_of = (
    test_cells.test_a_dry_run_shows_what_kubectl_makes_the_same_job_of
)

test_a_replica_that_raises_fails_the_cell_with_its_traceback = (
    test_endings.test_a_replica_that_raises_fails_the_cell_with_its_traceback
)
test_an_interrupt_leaves_nothing = test_endings.test_an_interrupt_leaves_nothing
test_a_job_that_someone_deletes_ends_its_cell = (
    test_endings.test_a_job_that_someone_deletes_ends_its_cell
)
test_a_deadline_fails_the_job = test_endings.test_a_deadline_fails_the_job
test_clean_policy_all_removes_everything = test_endings.test_clean_policy_all_removes_everything
test_the_end_of_the_job_ends_a_parameter_server = (
    test_endings.test_the_end_of_the_job_ends_a_parameter_server
)
# What a server would refuse is tried on it: the job with the operator's webhooks, and its pods.
test_a_quota_that_is_used_up_is_said_before_anything_exists = (
    test_endings.test_a_quota_that_is_used_up_is_said_before_anything_exists
)

test_a_kernel_that_is_killed_leaves_its_job_to_be_attached = (
    test_kernel.test_a_kernel_that_is_killed_leaves_its_job_to_be_attached
)


# The other way round: a job with fields and conditions that a newer operator may bring.

_KIND = "customresourcedefinition/tfjobs.kubeflow.org"
_SCHEMA = "/spec/versions/0/schema/openAPIV3Schema/properties"
_OPEN = [f"{_SCHEMA}/{part}/x-kubernetes-preserve-unknown-fields" for part in ("spec", "status")]


@pytest.fixture
def _open_kind(second_cluster: Cluster) -> Iterator[None]:
    """TFJobs may have any fields: the API server keeps those that it does not know."""

    def change(*operations: dict[str, object]) -> None:
        second_cluster.kubectl("patch", _KIND, "--type=json", "-p", json.dumps(operations))

    change(*({"op": "add", "path": path, "value": True} for path in _OPEN))
    yield
    change(*({"op": "remove", "path": path} for path in _OPEN))


@pytest.mark.usefixtures("_open_kind")
def test_fields_and_conditions_that_nobody_knows_are_ignored(team: Team) -> None:
    unknown = {
        "type": "Hibernating", "status": "True", "reason": "New", "message": "z",
        "lastUpdateTime": None, "ordinal": [1],
    }  # fmt: skip

    def change(display: Recorder) -> None:
        assert display.job
        name = f"tfjob/{display.job.name}"
        conditions = team.namespace.get(name)["status"]["conditions"]
        status = {"conditions": [*conditions, unknown], "progress": {"percent": 50}, "phase": "x"}
        argv = ("patch", name, "--type=merge", "-o", "json")
        team.namespace.kubectl(*argv, "-p", json.dumps({"spec": {"future": {"a": [1]}}}))
        put = json.dumps({"status": status})
        made = json.loads(team.namespace.kubectl(*argv, "--subresource=status", "-p", put))
        assert made["spec"]["future"] == {"a": [1]}
        assert made["status"]["progress"] == {"percent": 50}
        assert "Hibernating" in [one["type"] for one in made["status"]["conditions"]]
        team.namespace.touch(f"{display.job.name}-worker-0", "/tmp/seen")

    async def during(display: Recorder, work: asyncio.Task[Ended]) -> None:
        await wait(lambda: b"here" in display.data("worker-0"))
        await asyncio.to_thread(change, display)

    ended = team.run(
        "%framework=tensorflow\n%worker=1\nimport os, time\nprint('here', flush=True)\n"
        "while not os.path.exists('/tmp/seen'): time.sleep(0.1)\nprint('done')\n",
        during=during,
    )
    assert ended.error is None, ended.error
    assert ended.result
    assert ended.result.state is State.SUCCEEDED
    assert ended.display.data("worker-0") == b"here\ndone\n"
